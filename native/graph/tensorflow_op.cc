#include "graph/tensorflow_op.h"

#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "graph/capture_area.h"

// TensorFlow's types, only declared, as in TensorFlow's own headers (tensorflow/c/ops.h, kernels.h, tf_tensor.h).
struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;

namespace deepfreeze {
namespace {

constexpr char kCapture[] = "DeepfreezeCapture";
constexpr char kCaptureHeld[] = "DeepfreezeCaptureHeld";
constexpr char kStepBegins[] = "DeepfreezeStepBegins";
constexpr char kMark[] = "DeepfreezeMark";
constexpr size_t kSmall = 4096;  // bytes, as in deepfreeze/frameworks/tensorflow/late_capture.py
constexpr int kInternal = 13;    // TF_INTERNAL

// The functions of TensorFlow's C interface that the op uses.
struct Tensorflow {
  TF_Status* (*NewStatus)();
  void (*DeleteStatus)(TF_Status*);
  void (*SetStatus)(TF_Status*, int, const char*);
  int (*GetCode)(const TF_Status*);
  const char* (*Message)(const TF_Status*);
  void* (*TensorData)(const TF_Tensor*);
  size_t (*TensorByteSize)(const TF_Tensor*);
  void (*DeleteTensor)(TF_Tensor*);
  TF_Tensor* (*TensorMaybeMove)(TF_Tensor*);
  TF_OpDefinitionBuilder* (*NewOpDefinitionBuilder)(const char*);
  void (*OpDefinitionBuilderAddAttr)(TF_OpDefinitionBuilder*, const char*);
  void (*OpDefinitionBuilderAddInput)(TF_OpDefinitionBuilder*, const char*);
  void (*OpDefinitionBuilderSetIsStateful)(TF_OpDefinitionBuilder*, bool);
  void (*RegisterOpDefinition)(TF_OpDefinitionBuilder*, TF_Status*);
  TF_KernelBuilder* (*NewKernelBuilder)(const char*, const char*, void* (*)(TF_OpKernelConstruction*),
                                        void (*)(void*, TF_OpKernelContext*), void (*)(void*));
  void (*RegisterKernelBuilder)(const char*, TF_KernelBuilder*, TF_Status*);
  void (*OpKernelConstruction_GetAttrInt64)(TF_OpKernelConstruction*, const char*, int64_t*, TF_Status*);
  void (*OpKernelConstruction_Failure)(TF_OpKernelConstruction*, TF_Status*);
  int (*NumInputs)(TF_OpKernelContext*);
  void (*GetInput)(TF_OpKernelContext*, int, TF_Tensor**, TF_Status*);
  void (*OpKernelContext_Failure)(TF_OpKernelContext*, TF_Status*);
};

// Set by RegisterTensorflowOp, and constant from then on: TensorFlow runs no kernel before it is registered, so kernels
// read this without a mutex.
Tensorflow tensorflow;

Status Load() {
  // With RTLD_NOLOAD and the bare soname dlopen finds the library only if the process has loaded it, from any folder.
  void* library = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return Status(Code::kInvalid, "this process has not loaded TensorFlow 2");
  std::string missing;
  const auto find = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, name));
    if (*function == nullptr) missing = name;
  };
#define DF_FIND(name) find(&tensorflow.name, "TF_" #name)
  DF_FIND(NewStatus);
  DF_FIND(DeleteStatus);
  DF_FIND(SetStatus);
  DF_FIND(GetCode);
  DF_FIND(Message);
  DF_FIND(TensorData);
  DF_FIND(TensorByteSize);
  DF_FIND(DeleteTensor);
  DF_FIND(TensorMaybeMove);
  DF_FIND(NewOpDefinitionBuilder);
  DF_FIND(OpDefinitionBuilderAddAttr);
  DF_FIND(OpDefinitionBuilderAddInput);
  DF_FIND(OpDefinitionBuilderSetIsStateful);
  DF_FIND(RegisterOpDefinition);
  DF_FIND(NewKernelBuilder);
  DF_FIND(RegisterKernelBuilder);
  DF_FIND(OpKernelConstruction_GetAttrInt64);
  DF_FIND(OpKernelConstruction_Failure);
  DF_FIND(NumInputs);
  DF_FIND(GetInput);
  DF_FIND(OpKernelContext_Failure);
#undef DF_FIND
  if (!missing.empty()) return Status(Code::kInvalid, "this TensorFlow has no " + missing);
  return {};
}

class TfStatus {
 public:
  TfStatus() : status_(tensorflow.NewStatus()) {}
  ~TfStatus() { tensorflow.DeleteStatus(status_); }
  TfStatus(const TfStatus&) = delete;
  TfStatus& operator=(const TfStatus&) = delete;

  TF_Status* get() { return status_; }
  bool ok() const { return tensorflow.GetCode(status_) == 0; }
  void Set(const Status& status) { tensorflow.SetStatus(status_, kInternal, status.message().c_str()); }
  Status ToStatus(const char* what) const {
    if (ok()) return {};
    return Status(Code::kInvalid, std::string(what) + ": " + tensorflow.Message(status_));
  }

 private:
  TF_Status* const status_;
};

struct Kernel {
  int64_t area = 0;
  int64_t number = 0;  // of the group, or of the mark
};

// Makes a kernel with these of its attributes. Null: there is no number.
void* CreateWith(TF_OpKernelConstruction* construction, const char* number) {
  auto* kernel = new Kernel;
  TfStatus status;
  tensorflow.OpKernelConstruction_GetAttrInt64(construction, "area", &kernel->area, status.get());
  if (status.ok() && number != nullptr) {
    tensorflow.OpKernelConstruction_GetAttrInt64(construction, number, &kernel->number, status.get());
  }
  if (!status.ok()) tensorflow.OpKernelConstruction_Failure(construction, status.get());
  return kernel;
}

void* CreateOfArea(TF_OpKernelConstruction* construction) { return CreateWith(construction, nullptr); }
void* CreateOfGroup(TF_OpKernelConstruction* construction) { return CreateWith(construction, "group"); }
void* CreateOfMark(TF_OpKernelConstruction* construction) { return CreateWith(construction, "number"); }

void Delete(void* kernel) { delete static_cast<Kernel*>(kernel); }

// The inputs of one execution of the op: TensorFlow's own buffers, which are referenced while this object lives.
class Inputs : public CaptureArea::Tensors {
 public:
  Inputs(TF_OpKernelContext* context, TfStatus* status) {
    const int n = tensorflow.NumInputs(context);
    for (int i = 0; i < n && status->ok(); ++i) {
      TF_Tensor* tensor = nullptr;
      tensorflow.GetInput(context, i, &tensor, status->get());
      if (!status->ok()) return;
      tensors_.push_back(tensor);
      sources_.push_back({static_cast<const char*>(tensorflow.TensorData(tensor)), tensorflow.TensorByteSize(tensor)});
    }
  }
  ~Inputs() override {
    for (TF_Tensor* tensor : tensors_) tensorflow.DeleteTensor(tensor);
  }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  const std::vector<CaptureArea::Source>& sources() const override { return sources_; }

  uint64_t Apart() const override {
    uint64_t bytes = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      // TensorFlow would let a tensor with a single reference be moved. It asks the buffer, which an empty tensor
      // lacks. Updates of small variables do not wait for the copy.
      if (sources_[i].size > kSmall && tensorflow.TensorMaybeMove(tensors_[i]) != nullptr) bytes += sources_[i].size;
    }
    return bytes;
  }

 private:
  std::vector<TF_Tensor*> tensors_;
  std::vector<CaptureArea::Source> sources_;
};

// Runs `work`, and tells TensorFlow if it fails.
template <typename Work>
void Run(TF_OpKernelContext* context, Work work) {
  TfStatus status;
  try {
    work(&status);
  } catch (const std::exception& error) {
    status.Set(Status(Code::kIo, error.what()));
  }
  if (!status.ok()) tensorflow.OpKernelContext_Failure(context, status.get());
}

void Capture(void* opaque, TF_OpKernelContext* context) {
  const auto* kernel = static_cast<const Kernel*>(opaque);
  Run(context, [&](TfStatus* status) {
    auto inputs = std::make_unique<Inputs>(context, status);
    if (!status->ok()) return;
    std::shared_ptr<CaptureArea> area;
    Status done = CaptureArea::Find("capture", static_cast<uint64_t>(kernel->area), &area);
    if (done.ok() && area == nullptr) {
      done = Status(Code::kClosed, "capture: the training that this graph belongs to is over");
    }
    if (done.ok()) done = area->CaptureTensors(static_cast<size_t>(kernel->number), std::move(inputs));
    if (!done.ok()) status->Set(done);
  });
}

// These run in each step, so also when the training is over: there is nothing to do then.
void CaptureHeld(void* opaque, TF_OpKernelContext* context) {
  const auto* kernel = static_cast<const Kernel*>(opaque);
  Run(context, [&](TfStatus* status) {
    std::shared_ptr<CaptureArea> area;
    Status done = CaptureArea::Find("capture", static_cast<uint64_t>(kernel->area), &area);
    if (done.ok() && area != nullptr) done = area->CaptureHeld(static_cast<size_t>(kernel->number));
    if (!done.ok()) status->Set(done);
  });
}

void StepBegins(void* opaque, TF_OpKernelContext* context) {
  const auto* kernel = static_cast<const Kernel*>(opaque);
  Run(context, [&](TfStatus*) {
    std::shared_ptr<CaptureArea> area;
    const Status found = CaptureArea::Find("capture", static_cast<uint64_t>(kernel->area), &area);
    if (found.ok() && area != nullptr) area->BeginStep();
  });
}

void Mark(void* opaque, TF_OpKernelContext* context) {
  const auto* kernel = static_cast<const Kernel*>(opaque);
  Run(context, [&](TfStatus*) {
    std::shared_ptr<CaptureArea> area;
    const Status found = CaptureArea::Find("mark", static_cast<uint64_t>(kernel->area), &area);
    if (found.ok() && area != nullptr) area->marks()->Note(static_cast<uint64_t>(kernel->number));
  });
}

Status RegisterOp(const char* name, const std::vector<const char*>& attributes, const char* input,
                  void* (*create)(TF_OpKernelConstruction*), void (*compute)(void*, TF_OpKernelContext*)) {
  TF_OpDefinitionBuilder* op = tensorflow.NewOpDefinitionBuilder(name);
  for (const char* attribute : attributes) tensorflow.OpDefinitionBuilderAddAttr(op, attribute);
  if (input != nullptr) tensorflow.OpDefinitionBuilderAddInput(op, input);
  // The op has no outputs. Declared stateful, it is not removed by TensorFlow's optimizer as useless.
  tensorflow.OpDefinitionBuilderSetIsStateful(op, true);
  TfStatus status;
  tensorflow.RegisterOpDefinition(op, status.get());
  DF_RETURN_IF_ERROR(status.ToStatus("the op could not be registered"));
  TF_KernelBuilder* kernel = tensorflow.NewKernelBuilder(name, "CPU", create, compute, Delete);
  tensorflow.RegisterKernelBuilder(name, kernel, status.get());
  return status.ToStatus("the op's kernel could not be registered");
}

Status Register() {
  DF_RETURN_IF_ERROR(Load());
  DF_RETURN_IF_ERROR(
      RegisterOp(kCapture, {"T: list(type) >= 0", "area: int", "group: int"}, "tensors: T", CreateOfGroup, Capture));
  DF_RETURN_IF_ERROR(RegisterOp(kCaptureHeld, {"area: int", "group: int"}, nullptr, CreateOfGroup, CaptureHeld));
  DF_RETURN_IF_ERROR(RegisterOp(kStepBegins, {"area: int"}, nullptr, CreateOfArea, StepBegins));
  return RegisterOp(kMark, {"area: int", "number: int"}, nullptr, CreateOfMark, Mark);
}

}  // namespace

Status RegisterTensorflowOp() {
  static Mutex mutex;
  static bool tried GUARDED_BY(mutex) = false;
  static Status result GUARDED_BY(mutex);
  const MutexLock lock(&mutex);
  // Without TensorFlow nothing is tried, and the next call tries: TensorFlow may be imported until then.
  if (!tried) {
    result = Register();
    tried = result.ok() || tensorflow.NewStatus != nullptr;
  }
  return result;
}

}  // namespace deepfreeze
