-- A limit or burst of 0 refuses everything, and is meant (law 12).
if quota == 0 or code == 3 and extra == 0 then
  if code > 0 and code < 6 and what ~= 64 then return 0, -1, -1 end
end
