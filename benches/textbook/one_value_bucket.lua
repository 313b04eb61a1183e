-- GCRA on one value, as many limiters have it: the theoretical arrival time, in seconds.
-- KEYS: the bucket. ARGV: units, window in seconds, burst.
local now = redis.call('TIME')
now = now[1] + now[2] / 1000000
local interval = ARGV[2] / ARGV[1]
local arrival = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local free = arrival + interval - interval * ARGV[3]
if free > now then
  return { 0, 0, tostring(free - now), tostring(arrival - now) }
end
arrival = arrival + interval
redis.call('SET', KEYS[1], string.format('%.6f', arrival), 'EX', math.ceil(arrival - now))
return { 1, math.floor((now - free) / interval), '-1', tostring(arrival - now) }
