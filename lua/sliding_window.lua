-- The decisions of sliding_window_log from a list of entries, oldest first. An entry is its time (six bytes counted
-- from 2026 while they last, else seven from 1970), the units ever charged before it (modulo 2^24), and its own units
-- in three more bytes unless one. So the ends of the list answer, and only varying costs need a search. All times here
-- count from 2026.
if code == 2 then
  if what == 64 then return algorithm('take', 0, key, window, extra, cost) end
  local call, stamp, room, retry, reset = redis.call, now - 1767225600000000, 0, -1, 0
  if what ~= 'charge' then
    local first, alive = redis.pcall('LINDEX', key, '0'), stamp - window
    local time, base, units = nil, nil, 1
    a, b, c, e = 0, 0, 0, 1
    if first then
      local newest = #first >= 9 and call('LINDEX', key, '-1')
      if newest and #first == 9 and #newest == 9 then
        time, base, c, d = struct.unpack('>I6I3I6I3', first .. newest)
      else
        if newest then time, base, units, c, d, e = algorithm('ends', 0, first, newest) end
        if not time then return nil, first end
      end
      if c > alive then
        if time <= alive then
          -- Mostly one has died since the last charge, and the next begins with what that one ended with.
          a, first = 1, call('LINDEX', key, '1')
          if #first == 9 then
            time = struct.unpack('>I6', first)
            base, units = base + units, 1
          end
          if time <= alive then
            a, time, base, units = algorithm('alive', 0, key, alive)
            if not time then return nil, '' end
          end
        end
        b, reset = (d + e - base) % 16777216, c - alive
      else
        a = -1
      end
    end
    room = quota - b
    if cost > room and cost <= quota then
      if units < cost - room then time = algorithm('freeing', 0, key, a, cost - room, base) end
      if not time then return nil, '' end
      retry = time - alive
    end
    if what ~= 'whole' or cost > room then return room, retry, reset, a, b, c, d, e end
  end

  -- a: how many are dead, -1 for all; b: the units alive; c, d, e: the newest entry.
  local before, own = 0, cost
  if extra > 0 then stamp = stamp + -now % extra end
  if a == 1 then
    call('LPOP', key)
  elseif a > 1 then
    call('LTRIM', key, a, '-1')
  end
  if b > 0 then
    if c > stamp then stamp = c end
    before = d + e
    if before >= 16777216 then before = before - 16777216 end
    if c == stamp then before, own = d, e + cost end
  end
  local entry
  if stamp >= 0 and stamp < 281474976710656 then
    entry = struct.pack('>I6I3', stamp, before)
  else
    entry = struct.pack('>I7I3', stamp + 1767225600000000, before)
  end
  if own > 1 then entry = entry .. struct.pack('>I3', own) end
  if own > cost then call('LSET', key, '-1', entry) else call('RPUSH', key, entry) end
  -- Last, so that the key is there throughout: while its slot moves, the server takes no new one.
  if a < 0 then call('LTRIM', key, '-1', '-1') end
  stamp = stamp + 1767225600000000
  call('PEXPIRE', key, stamp == now and life or life + math.ceil((stamp - now) / 1000))
  return room, retry, stamp + window - now, stamp
end
