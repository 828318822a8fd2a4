-- LMS-HIER: UDP, port 4138, to 224.0.0.254 or ff02::114 (docs/wire.md, LMS-HIER messages).

local here = debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or ""
package.path = here .. "?.lua;" .. package.path
local polycast = require("polycast_shared")

local PORT = 4138
local IDENTIFIER = 0x4c4d
local UPDATE, ELECTED = 1, 2
local TYPES = { [UPDATE] = "UPDATE", [ELECTED] = "ELECTED" }
local WITHDRAWN = 0xffff

local hier = polycast.protocol("hier", "LMS-HIER (polycast)", {
	version = { "uint8", "Version", base.DEC },
	type = { "uint8", "Type", base.DEC, TYPES },
	identifier = { "uint16", "Identifier", base.HEX },
	boot = { "uint32", "Boot", base.HEX },
	sequence = { "uint32", "Sequence", base.DEC },
	hold_time = { "uint16", "Hold time (ms)", base.DEC },
	entries = { "uint16", "Entries", base.DEC },
	source = { "ipv4", "Source" },
	group = { "ipv4", "Group" },
	neighbour = { "ipv4", "Neighbour" },
	source6 = { "ipv6", "Source" },
	group6 = { "ipv6", "Group" },
	neighbour6 = { "ipv6", "Neighbour" },
	cost = { "uint16", "Cost", base.DEC },
})

local function is_multicast(range)
	local first = range(0, 1):uint()
	if range:len() == 16 then
		return first == 0xff
	end
	return first >= 224 and first < 240
end

local function unicast_or_zero(range)
	return not is_multicast(range) and (range:len() == 16 or range:uint() ~= 0xffffffff)
end

local function shown(range)
	return tostring(range:len() == 16 and range:ipv6() or range:ipv4())
end

-- An entry with addresses of 4 or 16 bytes.
local function entry(reader, kind, size)
	local suffix = size == 16 and "6" or ""
	reader:branch("Entry", function(part, item)
		local source = part:field("source" .. suffix, size)
		local group = part:field("group" .. suffix, size)
		local neighbour = part:field("neighbour" .. suffix, size)
		local cost, cost_item = part:number("cost", 2)
		if cost == WITHDRAWN then
			cost_item:append_text(" (withdrawn)")
		end
		part:zero(2)
		part:expect(is_multicast(group), "the group is not multicast")
		part:expect(unicast_or_zero(source) and unicast_or_zero(neighbour), "an address is not unicast")
		local nobody = polycast.is_zero(neighbour)
		if kind == UPDATE then
			part:expect(nobody, "an UPDATE names a neighbour")
		else
			part:expect(nobody == (cost == WITHDRAWN), "neighbour and cost disagree")
		end
		local from = polycast.is_zero(source) and "*" or shown(source)
		local says = cost == WITHDRAWN and "nobody" or "cost " .. cost
		item:append_text(string.format(": (%s, %s) %s", from, shown(group), says))
	end)
end

-- A message whose entries have addresses of this size.
local function message(size)
	local most = size == 16 and 27 or 64
	return function(reader)
		reader:expect(reader:number("version", 1) == 1, "unknown version")
		local kind = reader:number("type", 1)
		if not TYPES[kind] then
			reader:stop_here("unknown type")
		end
		reader:expect(reader:number("identifier", 2) == IDENTIFIER, "wrong identifier")
		reader:number("boot", 4)
		reader:number("sequence", 4)
		reader:expect(reader:number("hold_time", 2) > 0, "hold time is 0")
		local count = reader:number("entries", 2)
		reader:expect(count >= 1 and count <= most, "1 to " .. most .. " entries")
		for _ = 1, count do
			entry(reader, kind, size)
		end
		reader:finish()
		return string.format("%s, %d entries", TYPES[kind], count)
	end
end

function hier.proto.dissector(tvb, pinfo, tree)
	-- Addresses are of the family that carries the message.
	local size = tostring(pinfo.net_src):find(":") and 16 or 4
	local info, reader = polycast.dissect(hier, tvb, tree, message(size))
	polycast.columns(pinfo, "LMS-HIER", info, reader)
	return tvb:captured_len()
end

DissectorTable.get("udp.port"):add(PORT, hier.proto)
