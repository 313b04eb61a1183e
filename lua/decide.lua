-- Decides the limits that the packed arguments name, whose keys stand in a table from `place` on. Each is read and
-- judged on the way down and charged on the way up, so that all are judged before any is written (laws 6 and 11); the
-- last one is charged at once.
--
-- A limit's first number is its algorithm plus what to do: 0 check, 16 check without enforcing, 32 peek, 48 peek
-- without enforcing, 64 refund, 80 count, 96 take back. `life` is what the TTL of a charge has besides its meaning
-- (for the two exact windows: with it), in milliseconds.
--
-- Of each limit the reply has a head and its times. The head is the room left, plus its kind (0 refused, 1 admissible,
-- 2 charged, 3 charged with what a refund needs) times 2^24, plus the verdict on the whole (0 allowed, 1 refused,
-- 2 seen before) times 2^26. A reply that begins with a letter is an error; the verdict, which comes second, is none.
local function decide(keys, place, arguments, at, verdict)
  local code, quota, cost, window, extra, life, after = struct.unpack('<BI3I3dds', arguments, at)
  local key, what, rest, mode, id = keys[place], 0, ''
  if code < 16 then
    if code == 1 then id, after = struct.unpack('<Bc0', arguments, after) end
    mode = after > #arguments and verdict == 0 and 'whole' or 'judge'
  else
    what = code - code % 16
    code, mode = code - what, what < 32 and 'judge' or 'peek'
    if code == 1 then id, after = struct.unpack('<Bc0', arguments, after) end
    if what >= 64 then
      local rate, before, parts
      if what == 64 then rate, before, parts, after = struct.unpack('<I3I3d', arguments, after) end
      if after <= #arguments then rest, verdict = decide(keys, place + 1, arguments, after, verdict) end
      local done, reply =
        algorithm('amend', 0, what, code, key, quota, window, extra, cost, life, id, rate, before, parts)
      return not done and reply or not verdict and rest or reply .. rest, done and verdict
    end
  end

  local room, retry, reset, a, b, c, d, e = algorithm(mode, code, key, quota, window, extra, cost, life, id)
  if mode == 'whole' and room and cost <= room and a ~= 'repeat' then
    -- What nearly every call is: charged already.
    if b then return struct.pack('>I4ddI3d', 50331648 + room - cost, reset, a, b, c), 0 end
    return struct.pack('>I4dd', 33554432 + room - cost, reset, a), 0
  end
  if not room then return algorithm('refusal', 0, retry, key) end
  if a == 'repeat' then verdict = 134217728 end
  if cost > room and verdict == 0 and what % 32 == 0 then verdict = 67108864 end
  if mode ~= 'whole' and after <= #arguments then
    rest, verdict = decide(keys, place + 1, arguments, after, verdict)
    if not verdict then return rest end
  end
  if cost > room then return struct.pack('>I4dd', verdict + (room > 0 and room or 0), reset, retry) .. rest, verdict end
  if mode ~= 'whole' or verdict > 0 then
    if verdict > 0 or what >= 32 then return struct.pack('>I4d', verdict + 16777216 + room, reset) .. rest, verdict end
    local _
    _, _, reset, a, b, c = algorithm('charge', code, key, quota, window, extra, cost, life, id, a, b, c, d, e)
  end
  if b then return struct.pack('>I4ddI3d', 50331648 + room - cost, reset, a, b, c) .. rest, 0 end
  return struct.pack('>I4dd', 33554432 + room - cost, reset, a) .. rest, 0
end
