-- LMS-HIER: UDP, port 4138, to 224.0.0.254 (docs/wire.md, LMS-HIER messages).

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
	cost = { "uint16", "Cost", base.DEC },
})

local function unicast_or_zero(range)
	local first = range(0, 1):uint()
	return not (first >= 224 and first < 240) and range:uint() ~= 0xffffffff
end

local function entry(reader, kind)
	reader:branch("Entry", function(part, item)
		local source = part:field("source", 4)
		local group = part:field("group", 4)
		local neighbour = part:field("neighbour", 4)
		local cost, cost_item = part:number("cost", 2)
		if cost == WITHDRAWN then
			cost_item:append_text(" (withdrawn)")
		end
		part:zero(2)
		local first = group(0, 1):uint()
		part:expect(first >= 224 and first < 240, "the group is not multicast")
		part:expect(unicast_or_zero(source) and unicast_or_zero(neighbour), "an address is not unicast")
		local nobody = polycast.is_zero(neighbour)
		if kind == UPDATE then
			part:expect(nobody, "an UPDATE names a neighbour")
		else
			part:expect(nobody == (cost == WITHDRAWN), "neighbour and cost disagree")
		end
		local from = polycast.is_zero(source) and "*" or tostring(source:ipv4())
		local says = cost == WITHDRAWN and "nobody" or "cost " .. cost
		item:append_text(string.format(": (%s, %s) %s", from, tostring(group:ipv4()), says))
	end)
end

local function message(reader)
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
	reader:expect(count >= 1 and count <= 64, "1 to 64 entries")
	for _ = 1, count do
		entry(reader, kind)
	end
	reader:finish()
	return string.format("%s, %d entries", TYPES[kind], count)
end

function hier.proto.dissector(tvb, pinfo, tree)
	local info, reader = polycast.dissect(hier, tvb, tree, message)
	polycast.columns(pinfo, "LMS-HIER", info, reader)
	return tvb:captured_len()
end

DissectorTable.get("udp.port"):add(PORT, hier.proto)
