-- The LMS option (docs/wire.md: classic form, IPv4 options 138 and 139; own form, IPv4 option 158 and IPv6 hop-by-hop option
-- 0x3e), LMS by datagram, and the replier cost in IGMPv3 and MLDv2 reports.

local here = debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or ""
package.path = here .. "?.lua;" .. package.path
local polycast = require("polycast_shared")

local CLASSIC = { [138] = "request", [139] = "directed multicast" }
local SUB_OPTIONS = { [1] = "request", [2] = "directed multicast" }
local OWN = 158
local PORT = 4144
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
	turning_address6 = { "ipv6", "Turning-point address" },
	source6 = { "ipv6", "Original source" },
	group6 = { "ipv6", "Group" },
	cookie = { "uint64", "Cookie", base.HEX },
	hop_limit = { "uint8", "Hop limit of the repair", base.DEC },
	source_port = { "uint16", "Port of the source", base.DEC },
	group_port = { "uint16", "Port of the group", base.DEC },
	payload = { "bytes", "Payload" },
	cost = { "uint16", "Replier cost", base.DEC },
})

local function shown(range)
	return tostring(range:len() == 16 and range:ipv6() or range:ipv4())
end

-- Turning point, source and group, as in all forms; addresses of 4 or 16 bytes.
local function body(reader, size)
	local suffix = size == 16 and "6" or ""
	local interface, item = reader:number("turning_interface", 2)
	local router = reader:field("turning_address" .. suffix, size)
	reader:expect((interface == 0xffff) == polycast.is_zero(router),
		"turning-point interface without address, or the other way round")
	reader:field("source" .. suffix, size)
	local group = reader:field("group" .. suffix, size)
	if interface == 0xffff then
		item:append_text(" (unset)")
		return string.format("group %s, not turned", shown(group)), false
	end
	return string.format("group %s, turned at %s interface %d", shown(group), shown(router), interface), true
end

-- The cookie: none without a turning point.
local function cookie(reader, turned)
	local range = reader:field("cookie", 8)
	reader:expect(turned or polycast.is_zero(range), "a cookie without a turning point")
end

-- What follows the experiment in the own form, for addresses of this size.
local function own(reader, size)
	local what = SUB_OPTIONS[reader:number("sub_option", 1)]
	reader:expect(what, "unknown sub-option")
	local length = 2 + 2 + 3 * size + 8
	reader:expect(reader:number("sub_length", 1) == length, "a sub-option has " .. length .. " bytes")
	local says, turned = body(reader, size)
	cookie(reader, turned)
	return what, says
end

local function option(reader, item)
	local kind = reader:number("type", 1)
	local length = reader:number("length", 1)
	local what, says
	if CLASSIC[kind] then
		what = CLASSIC[kind]
		reader:expect(length == 16, "an option of this type has 16 bytes")
		says = body(reader, 4)
	else
		if length < 4 then
			reader:stop_here("no room for an experiment identifier")
		end
		if reader:number("experiment", 2) ~= EXPERIMENT then
			item:append_text(" of another experiment")
			return
		end
		reader:expect(length == 28, "an option of this type has 28 bytes")
		what, says = own(reader, 4)
	end
	item:append_text(": " .. (what or "?") .. ", " .. says)
	reader:finish()
end

function lms.proto.dissector(tvb, pinfo, tree)
	polycast.dissect(lms, tvb, tree, option)
	return tvb:captured_len()
end

local options = DissectorTable.get("ip.option")
for _, kind in ipairs({ 138, 139, OWN }) do
	options:add(kind, lms.proto)
end

-- By datagram. The size of addresses is that of the packet's own.
local datagrams = Proto("polycast.lms_datagram", "LMS by datagram (polycast)")

local function datagram(size)
	return function(reader, item)
		reader:expect(reader:number("experiment", 2) == EXPERIMENT, "wrong identifier")
		local what = SUB_OPTIONS[reader:number("sub_option", 1)]
		reader:expect(what, "unknown kind")
		reader:number("hop_limit", 1)
		local says, turned = body(reader, size)
		cookie(reader, turned)
		reader:number("source_port", 2)
		reader:number("group_port", 2)
		if reader:left() > 0 then
			reader:rest("payload")
		end
		says = "LMS " .. (what or "?") .. ", " .. says
		item:append_text(": " .. says)
		return says
	end
end

function datagrams.dissector(tvb, pinfo, tree)
	if tvb:captured_len() < 2 or tvb(0, 2):uint() ~= EXPERIMENT then
		return 0
	end
	local size = tostring(pinfo.net_src):find(":") and 16 or 4
	local info, reader = polycast.dissect(lms, tvb, tree, datagram(size))
	polycast.columns(pinfo, "LMS", info, reader)
	return tvb:captured_len()
end

DissectorTable.get("udp.port"):add(PORT, datagrams)

-- The hop-by-hop option: Wireshark shows the data of experimental options as bytes.
local hop_by_hop = Proto("polycast.lms_hop_by_hop", "LMS hop-by-hop option (polycast)")
local experimental = Field.new("ipv6.opt.experimental")

function hop_by_hop.dissector(tvb, pinfo, tree)
	for _, info in ipairs({ experimental() }) do
		local range = info.range
		if range:len() >= 2 and range(0, 2):uint() == EXPERIMENT then
			polycast.dissect(lms, range:tvb(), tree, function(reader, item)
				reader:number("experiment", 2)
				local what, says = own(reader, 16)
				item:append_text(": " .. (what or "?") .. ", " .. says)
				reader:finish()
			end)
		end
	end
end

register_postdissector(hop_by_hop)

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
