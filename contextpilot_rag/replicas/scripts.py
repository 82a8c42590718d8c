"""Scripts: what the server does in one step, with a stream's log and its snapshot, which one hash tag keeps together.

A key of another kind stands where somebody else has put it: it is dropped, as all that is there may be lost; and so is
a stream whose last position somebody has used.
"""

from __future__ import annotations

_COMMON = """
local log, snap = KEYS[1], KEYS[2]
local function kind(key) return redis.call('TYPE', key).ok end
local function drop_unless(key, wanted)
  local is = kind(key)
  if is ~= wanted and is ~= 'none' then redis.call('DEL', key) end
end
-- Numbers of a position have up to 64 bits, and Lua's have not: they are compared as digits.
local function below(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end
local function digits(text)
  return text == '0' or (text:sub(1, 1) ~= '0' and not below('18446744073709551615', text))
end
local function parts(position)
  if type(position) ~= 'string' then return nil end
  local first, second = position:match('^(%d+)-(%d+)$')
  if not first or not digits(first) or not digits(second) then return nil end
  return {first, second}
end
local function standing()
  if kind(snap) ~= 'hash' then return nil end
  local has = redis.call('HMGET', snap, 'p', 'm', 'd')
  if not (has[2] and #has[2] <= 64 and has[3]) then return nil end
  if not (has[1] and parts(has[1])) then return nil end
  return has[1], has[2]
end
local function put(position, mac, data, keep)
  drop_unless(snap, 'hash')
  redis.call('HSET', snap, 'p', position, 'm', mac, 'd', data)
  redis.call('PEXPIRE', snap, keep)
  redis.call('PEXPIRE', log, keep)
end
"""

FOUND = (
    _COMMON
    + """
if standing() then return 0 end
drop_unless(log, 'stream')
local function add(call)
  return call('XADD', log, 'MAXLEN', '~', ARGV[7], '*', 'm', ARGV[5], 'd', ARGV[6])
end
local added = add(redis.pcall)
if type(added) == 'table' and added.err then
  if not added.err:find('exhausted the last', 1, true) then return added end
  redis.call('DEL', log)
  add(redis.call)
end
put(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return 1
"""
)
"""Arguments: the snapshot's position, mac and data, milliseconds to keep it, the entry's mac and data, most entries."""

COMPACT = (
    _COMMON
    + """
local old, mac = standing()
if old and mac ~= ARGV[5] then
  local a, b = parts(old), parts(ARGV[1])
  if not below(a[1], b[1]) and not (a[1] == b[1] and below(a[2], b[2])) then return 0 end
end
if ARGV[1] ~= '0-0' then
  if kind(log) ~= 'stream' then return 0 end
  if #redis.call('XRANGE', log, ARGV[1], ARGV[1]) == 0 then return 0 end
  -- First what makes room: a script that has written may go on where the memory is full.
  redis.call('XTRIM', log, 'MINID', '=', ARGV[1])
end
put(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return 1
"""
)
"""Arguments: the snapshot's position, mac and data, milliseconds to keep it; perhaps the mac of one that has to go."""

STANDING = _COMMON + "return (standing())"
"""The position of the snapshot, if there is all of one."""

ENTRIES = """
if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then return {} end
local found = redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
for _, entry in ipairs(found) do
  if #entry[2] > 4 then entry[2] = {'x', ''} end
  for i, part in ipairs(entry[2]) do
    if #part > tonumber(ARGV[3]) then entry[2][i] = '' end
  end
end
return found
"""
"""Entries from a position on, without what is longer than so many bytes. Arguments: position, how many, bytes."""

SNAPSHOT = """
if redis.call('TYPE', KEYS[2]).ok ~= 'hash' then return {} end
local has = redis.call('HMGET', KEYS[2], 'p', 'm', 'd')
for i = 1, 3 do
  if has[i] and #has[i] > tonumber(ARGV[1]) then has[i] = '' end
end
return has
"""
"""The snapshot's position, mac and data, without what is longer than so many bytes."""

MEND = """
local is = redis.call('TYPE', KEYS[1]).ok
if is == 'none' then return 0 end
if is == ARGV[1] then
  if is ~= 'stream' then return 0 end
  local added = redis.pcall('XADD', KEYS[1], 'NOMKSTREAM', '*', 'x', '')
  if type(added) ~= 'table' or not added.err then return 0 end
  if not added.err:find('exhausted the last', 1, true) then return added end
end
return redis.call('DEL', KEYS[1])
"""
"""Drop a key that is not of the kind that it should be, or a stream whose last position somebody has used."""
