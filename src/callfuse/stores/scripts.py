"""Define the Lua scripts of the ledger. Each runs atomically on a Redis or Valkey, and costs one round trip."""

from typing import Final

from callfuse.stores.node import Script

READ: Final = Script("""
local function get(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' and string.find(value.err, '^WRONGTYPE') then return '' end
  return value
end
local lane, key = get(KEYS[1]), KEYS[2]
if type(lane) == 'table' then return lane end
local name = lane and string.match(lane, '^([^\\n]+)\\n')
if name then key = string.sub(key, 1, #key - #ARGV[1]) .. name end
local session = get(key)
if type(session) == 'table' then return session end
if session then redis.call('PEXPIRE', key, ARGV[2]) end
local used = not lane and get(KEYS[3])
if type(used) == 'table' then return used end
return {lane, session, used}
""")
"""Get the values of a lane and of its session, and extend the lifetime of the session to ARGV[2] milliseconds. If the
lane is gone, get the time of its last use, too.

KEYS: the lane's, the one of the session ARGV[1], and the one of the last use. If the value of the lane begins with the
name of another session, that session is read; its key has the same hash tag."""
WRITE: Final = Script("""
local function revision(value)
  return type(value) == 'string' and string.match(value, '^[^\\n]*\\n(%x*)\\n') or ''
end
local checked, there, moved = tonumber(ARGV[2]), {}, false
local new = revision(ARGV[4 + checked])
for at = 1, checked do
  local value = redis.pcall('GET', KEYS[at])
  if type(value) == 'table' then
    if not string.find(value.err, '^WRONGTYPE') then return value end
    value = false
  end
  local found = revision(value)
  if found ~= '' and found == new then return 0 end
  there[at], moved = value, moved or (found ~= '' and found ~= ARGV[3 + at])
end
if moved then return there end
for at = checked + 1, #KEYS do
  redis.call('SET', KEYS[at], ARGV[3 + at], 'PX', at > #KEYS - ARGV[3] and ARGV[1] * 100 or ARGV[1])
end
return #KEYS - checked
""")
"""Set all keys after the first ARGV[2], for ARGV[1] milliseconds. If one of the first ARGV[2] has another revision than
when it was read, set nothing and return their values. The last ARGV[3] keys are kept 100 times as long.

KEYS: keys to check, keys to set. ARGV after the first three: the revisions that were read, the values to set. A value
without a revision, from an earlier version, counts as unchanged. So do the values of this script itself, if it ran
before over a connection that broke before the answer."""
GET: Final = Script("return redis.call('GET', KEYS[1])")
SWAP: Final = Script("""
local before = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])
return before
""")
"""Set a key, for ARGV[1] milliseconds, and return its previous value."""
