-- The LMS option of IPv4 packets (docs/wire.md: classic form, options 138 and 139; single form,
-- option 158), and the replier cost in IGMPv3 and MLDv2 reports.

local here = debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or ""
package.path = here .. "?.lua;" .. package.path
local polycast = require("polycast_shared")

local CLASSIC = { [138] = "request", [139] = "directed multicast" }
local SUB_OPTIONS = { [1] = "request", [2] = "directed multicast" }
local SINGLE = 158
local EXPERIMENT = 0x4c4d

local lms = polycast.protocol("lms", "LMS option (polycast)", {
	type = { "uint8", "Option", base.DEC, { [138] = "IPOPT_MREQ", [139] = "IPOPT_DMCAST", [158] = "IPOPT_LMS" } },
	length = { "uint8", "Length", base.DEC },
	experiment = { "uint16", "Experiment", base.HEX },
	sub_option = { "uint8", "Sub-option", base.DEC, SUB_OPTIONS },
	sub_length = { "uint8", "Sub-option length", base.DEC },
	turning_interface = { "uint16", "Turning-point interface", base.DEC },
	turning_address = { "ipv4", "Turning-point address" },
	source = { "ipv4", "Original source" },
	group = { "ipv4", "Group" },
	cost = { "uint16", "Replier cost", base.DEC },
})

-- Turning point, source and group, as in both forms.
local function body(reader)
	local interface, item = reader:number("turning_interface", 2)
	local router = reader:field("turning_address", 4)
	reader:expect((interface == 0xffff) == polycast.is_zero(router),
		"turning-point interface without address, or the other way round")
	reader:field("source", 4)
	local group = reader:field("group", 4)
	if interface == 0xffff then
		item:append_text(" (unset)")
		return string.format("group %s, not turned", tostring(group:ipv4()))
	end
	return string.format("group %s, turned at %s interface %d", tostring(group:ipv4()), tostring(router:ipv4()), interface)
end

local function option(reader, item)
	local kind = reader:number("type", 1)
	local length = reader:number("length", 1)
	local what
	if CLASSIC[kind] then
		what = CLASSIC[kind]
		reader:expect(length == 16, "an option of this type has 16 bytes")
	else
		if length < 4 then
			reader:stop_here("no room for an experiment identifier")
		end
		if reader:number("experiment", 2) ~= EXPERIMENT then
			item:append_text(" of another experiment")
			return
		end
		reader:expect(length == 20, "an option of this type has 20 bytes")
		what = SUB_OPTIONS[reader:number("sub_option", 1)]
		reader:expect(what, "unknown sub-option")
		reader:expect(reader:number("sub_length", 1) == 16, "a sub-option has 16 bytes")
	end
	item:append_text(": " .. (what or "?") .. ", " .. body(reader))
	reader:finish()
end

function lms.proto.dissector(tvb, pinfo, tree)
	polycast.dissect(lms, tvb, tree, option)
	return tvb:captured_len()
end

local options = DissectorTable.get("ip.option")
for _, kind in ipairs({ 138, 139, SINGLE }) do
	options:add(kind, lms.proto)
end

-- IGMPv3 and MLDv2 reports: Wireshark shows auxiliary data as bytes; here is what ours mean.
local cost = Proto("polycast.lms_cost", "LMS replier cost (polycast)")
local auxiliary = { Field.new("igmp.aux_data"), Field.new("icmpv6.mldr.mar.auxiliary_data") }

function cost.dissector(tvb, pinfo, tree)
	for _, field in ipairs(auxiliary) do
		for _, info in ipairs({ field() }) do
			local range = info.range
			if range:len() >= 4 and range(0, 2):uint() == EXPERIMENT then
				local item = tree:add(lms.proto, range(0, 4))
				local value = range(2, 2):uint()
				item:set_text("LMS replier cost: " .. (value == 0xffff and "withdrawn" or value))
				item:add(lms.fields.experiment, range(0, 2))
				item:add(lms.fields.cost, range(2, 2))
			end
		end
	end
end

register_postdissector(cost)
