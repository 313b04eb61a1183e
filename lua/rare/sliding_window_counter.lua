-- The refund of sliding_window_counter: out of the window of the charge, while that still weighs: until the end of the
-- next.
if what == 'uncount' then
  local key, window, charged, cost, time, current, previous = ...
  local moment = math.max(now, time)
  if moment - moment % window > charged - charged % window + window then return 0 end
  local windows = (time - time % window - charged + charged % window) / window
  local units = windows == 0 and math.min(cost, current) or windows == 1 and math.min(cost, previous) or 0
  if windows == 0 then current = current - units else previous = previous - units end
  if units > 0 then redis.call('SET', key, struct.pack('>I7I3I3', time, current, previous), 'KEEPTTL') end
  return units
end
