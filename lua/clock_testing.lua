-- For tests alone: the last argument is the time.
local now = struct.unpack('>I7', table.remove(ARGV))
