#include "capi/stats.h"

#include <iterator>

namespace deepfreeze {

df_stats ToStats(const Counters& from) {
  df_stats stats = {};
  stats.waits = from.waits.value();
  stats.wait_us = from.wait_us.value();
  stats.looks = from.looks.value();
  stats.pauses = from.pauses.value();
  stats.pause_us = from.pause_us.value();
  stats.copied_bytes = from.copied_bytes.value();
  stats.copy_us = from.copy_ns.value() / 1000;
  stats.external_direct_bytes = from.external.direct_bytes.value();
  stats.external_cached_bytes = from.external.cached_bytes.value();
  stats.external_read_bytes = from.external.read_bytes.value();
  stats.external_syncs = from.external.syncs.value();
  stats.external_metadata = from.external.metadata.value();
  stats.external_lists = from.external.lists.value();
  stats.external_names = from.external.names.value();
  stats.local_direct_bytes = from.local.direct_bytes.value();
  stats.local_cached_bytes = from.local.cached_bytes.value();
  stats.local_read_bytes = from.local.read_bytes.value();
  stats.local_syncs = from.local.syncs.value();
  stats.local_metadata = from.local.metadata.value();
  stats.local_lists = from.local.lists.value();
  stats.local_names = from.local.names.value();
  for (const auto& [name, seconds] : from.threads.Seconds()) {
    if (stats.threads == std::size(stats.thread)) break;
    df_thread& thread = stats.thread[stats.threads++];
    name.copy(thread.name, sizeof(thread.name) - 1);
    thread.cpu_s = seconds;
  }
  return stats;
}

}  // namespace deepfreeze
