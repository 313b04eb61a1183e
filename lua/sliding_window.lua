-- The decisions of sliding_window_log from a list of entries, oldest first. An entry is its time (six bytes counted
-- from 2026 while they last, else seven), the units ever charged before it (modulo 2^24), and its own units in three
-- more bytes unless one. So the ends of the list answer, and only varying costs need a search.
if code == 2 then
  if what == 64 then return algorithm('take', 0, key, window, extra, cost) end
  local call, room, retry, reset = redis.call, 0, -1, 0
  if what ~= 'charge' then
    local first, alive = redis.pcall('LINDEX', key, '0'), now - window
    local time, base, units = nil, nil, 1
    a, b, e = 0, 0, 1
    if first then
      local newest = #first > 0 and call('LINDEX', key, '-1') or ''
      if #first == 9 and #newest == 9 then
        time, base, c, d = struct.unpack('>I6I3I6I3', first .. newest)
        time, c = time + 1767225600000000, c + 1767225600000000
      else
        time, base, units, c, d, e = algorithm('ends', 0, first, newest)
        if not time then return nil, first end
      end
      if c > alive then
        if time <= alive then
          a, first = 1, call('LINDEX', key, '1')
          if #first == 9 then
            time, base = struct.unpack('>I6I3', first)
            time, units = time + 1767225600000000, 1
          else
            time = alive
          end
          if time <= alive then a, time, base, units = algorithm('alive', 0, key, alive) end
          if not time then return nil, '' end
        end
        b, reset = (d + e - base) % 16777216, c + window - now
      end
    end
    room = quota - b
    if cost > room and cost <= quota then
      if units < cost - room then time = algorithm('freeing', 0, key, a, cost - room, base) end
      if not time then return nil, '' end
      retry = time + window - now
    end
    if what ~= 'whole' or cost > room then return room, retry, reset, a, b, c, d, e end
  end

  local dead, live, last, before, stamp = a, b, c, d, now
  if extra > 0 then stamp = now + -now % extra end
  if last and last > stamp then stamp = last end
  if dead == 1 then
    call('LPOP', key)
  elseif dead > 1 then
    call('LTRIM', key, dead, '-1')
  end
  local merged, own = live > 0 and stamp == last, cost
  if merged then
    own = e + cost
  elseif live > 0 then
    before = (before + e) % 16777216
  else
    before = 0
    if last then call('DEL', key) end
  end
  local place, entry = stamp - 1767225600000000, nil
  if place >= 0 and place < 281474976710656 then
    entry = struct.pack('>I6I3', place, before)
  else
    entry = struct.pack('>I7I3', stamp, before)
  end
  if own > 1 then entry = entry .. struct.pack('>I3', own) end
  if merged then call('LSET', key, '-1', entry) else call('RPUSH', key, entry) end
  reset = stamp + window - now
  call('PEXPIRE', key, stamp == now and life or life + math.ceil((stamp - now) / 1000))
  return room, retry, reset, stamp
end
