-- State: a sorted set, score = time of the charge, one member per unit: the request's id, then id with a number. An id
-- begins with the mark of its kind, `=` or `~`, so a number before it cannot make one of another. Scores are read only
-- where they are asked for: the server prints them slowly. Times are printed here in two halves for the same reason.
if code == 1 then
  if what == 64 then return algorithm('remove', 0, key, window, extra, cost, id) end
  local room, retry, reset, alive = 0, -1, 0, now - window
  alive = string.format('%d%06d', (alive - alive % 1000000) / 1000000, alive % 1000000)
  if what ~= 'charge' then
    local total, newest, known = redis.pcall('ZCARD', key), now, false
    if type(total) == 'table' then return nil, total end
    a, b, room = now, 0, quota
    if total > 0 then
      b = redis.call('ZCOUNT', key, '-inf', alive)
      known = string.byte(id) == 61 and redis.call('ZSCORE', key, id)
      known = known and tonumber(known) > now - window
      room = quota - total + b
      if what ~= 'whole' or cost > room or known then
        newest = redis.call('ZREVRANGE', key, '0', '0', 'WITHSCORES')[2]
      else
        local after = string.format('(%d%06d', (now - now % 1000000) / 1000000, now % 1000000)
        newest = redis.call('ZREVRANGEBYSCORE', key, '+inf', after, 'WITHSCORES', 'LIMIT', '0', '1')[2] or now
      end
      newest = tonumber(newest)
      if newest >= 4503599627370496 or newest % 1 ~= 0 then return nil, '' end
      if total > b then reset = newest + window - now end
      if newest > now then a = newest end
      if known then return room, retry, reset, 'repeat' end
    end
    if cost > room and cost <= quota then
      local place = string.format('%d', b + cost - room - 1)
      retry = redis.call('ZRANGE', key, place, place, 'WITHSCORES')[2] + window - now
      if retry % 1 ~= 0 then return nil, '' end
    end
    if what ~= 'whole' or cost > room then return room, retry, reset, a, b end
  end

  local stamp, dead = a, b
  local score = string.format('%d%06d', (stamp - stamp % 1000000) / 1000000, stamp % 1000000)
  if cost == 1 then redis.call('ZADD', key, score, id) else algorithm('add', 0, key, score, id, cost) end
  -- Last, so that the key is there throughout: while its slot moves, the server takes no new one.
  if dead > 0 then redis.call('ZREMRANGEBYSCORE', key, '-inf', alive) end
  reset = stamp + window - now
  redis.call('PEXPIRE', key, stamp == now and life or life + math.ceil((stamp - now) / 1000))
  return room, retry, reset, stamp
end
