# The next container of a pod to be killed for memory, or the planned end of all, whichever comes first:
# {"who": the container's index as text, or "all", "at": unix seconds}.
def bytes:
  if type == "number" then . else
    capture("^(?<number>[0-9.]+)(?<unit>.*)$")
    | (.number | tonumber) * {"": 1, "m": 0.001, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
                              "Ki": 1024, "Mi": 1048576, "Gi": 1073741824, "Ti": 1099511627776}[.unit]
  end;
def rfc3339:
  (. * 1000 | floor) as $ms
  | ($ms / 1000 | floor | todate | rtrimstr("Z")) + "." + ($ms % 1000 + 1000 | tostring | .[1:]) + "Z";

# When a series of {start_s, step_s, bytes} first passes the limit, seen by a container that started at $started.
# The last sample is held. Nothing is killed within a second of its start, to bound the rate of restarts.
def passes($limit; $started):
  (.start_s // $started) as $begin | .step_s as $step_s | .bytes as $series | ($series | length - 1) as $last
  | ([0, (($started - $begin) / $step_s | floor)] | max) as $first
  | first(range($first; [$first, $last] | max + 1) | select($series[[., $last] | min] > $limit))
  | [$started + 1, $begin + . * $step_s] | max;

(.metadata.annotations // {}) as $told
| if .status.phase == "Running" and .metadata.deletionTimestamp == null then
    [ .status.containerStatuses | to_entries[] | .key as $index | .value | select(.state.running)
      | .name as $name | (.state.running.startedAt | fromdate) as $started
      | ($told["phasewise.dev/runs-for-s"] // empty | tonumber | {who: "all", at: ($started + .)}),
        ( (.resources.limits.memory // empty | bytes) as $limit
          | ($told["phasewise.dev/memory." + $name] as $constant
             | if $constant then $constant | bytes | select(. > $limit) | $started + 1
               else $told["phasewise.dev/memory-series." + $name] // empty | fromjson | passes($limit; $started) end)
          | {who: ($index | tostring), at: .} )
    ] | min_by(.at) // empty
  else empty end
