// Named values: the section of optional values that a record and a slot have since version 2. A reader skips the names
// that it does not know, and a program that copies a section keeps them. Bytes: docs/format.md, "Named values".
#ifndef DEEPFREEZE_FORMAT_NAMED_VALUES_H_
#define DEEPFREEZE_FORMAT_NAMED_VALUES_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace deepfreeze {

// RETURNS ok if `section` is a whole section: names in ascending order, sizes inside of it, right checksums; else
// kCorrupt. `where` is the file that the message names. An empty section is whole.
Status CheckNamedValues(std::string_view section, const std::string& where);

// *value: the bytes of the value `name`, a part of `section`: they live as long as its memory. REQUIRES:
// CheckNamedValues has accepted the section. RETURNS false, and leaves *value as it is, if the section has no such
// value.
bool FindNamedValue(std::string_view section, std::string_view name, std::string_view* value);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_NAMED_VALUES_H_
