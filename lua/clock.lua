-- The server's clock, read once a script (law 7).
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
