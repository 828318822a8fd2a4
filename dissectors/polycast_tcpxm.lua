-- TCP-XM: segments in UDP go to Wireshark's own TCP dissector, and the options of both carriers are
-- explained (docs/wire.md, TCP-XM options).

local here = debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or ""
package.path = here .. "?.lua;" .. package.path
local polycast = require("polycast_shared")

local GROUP, OTHER = 253, 254
local EXPERIMENT = 0x584d

local tcpxm = polycast.protocol("tcpxm", "TCP-XM options (polycast)", {
	kind = { "uint8", "Kind", base.DEC, { [GROUP] = "group", [OTHER] = "feedback or tag" } },
	length = { "uint8", "Length", base.DEC },
	experiment = { "uint16", "Experiment", base.HEX },
	group = { "ipv4", "Group" },
	group6 = { "ipv6", "Group" },
	leave = { "bool", "Leave the group" },
	feedback = { "uint8", "Came by multicast (%)", base.DEC },
	tag = { "bytes", "Tag" },
})

-- Why a group is as no option, or nil.
local function not_a_group(range)
	local first = range(0, 1):uint()
	if range:len() == 4 then
		if first < 224 or first >= 240 then
			return "not multicast"
		end
		return range(0, 2):uint() == 0xe000 and range(2, 1):uint() <= 1 and "of 224.0.0.0/23" or nil
	end
	if first ~= 0xff then
		return "not multicast"
	end
	local scope = range(1, 1):bitfield(4, 4)
	return (scope < 4 or scope == 15) and "of a scope that is not routed" or nil
end

-- What the option says, as a field with its range and a text; or nil, and why TCP-XM passes it over.
local function meaning(kind, value)
	local length = value and value:len() or 0
	if kind == GROUP then
		if length == 0 then
			return "leave", nil, "leave the group"
		elseif length ~= 4 and length ~= 16 then
			return nil, "not an address"
		end
		local why = not_a_group(value)
		if why then
			return nil, why
		elseif length == 4 then
			return "group", value, "group " .. tostring(value:ipv4())
		end
		return "group6", value, "group " .. tostring(value:ipv6())
	elseif length == 1 then
		local percent = value:uint()
		if percent > 100 then
			return nil, "more than 100 %"
		end
		return "feedback", value, percent .. " % came by multicast"
	elseif length == 8 then
		return "tag", value, "tag"
	end
	return nil, "neither feedback nor tag"
end

local function option(tree, range)
	local kind, length = range(0, 1):uint(), range:len()
	local name, value, text = meaning(kind, length > 4 and range(4, length - 4) or nil)
	local item = tree:add(tcpxm.proto, range)
	if not name then
		item:set_text("TCP-XM option, passed over")
		item:add_proto_expert_info(tcpxm.malformed, "Passed over: " .. value)
		return
	end
	item:set_text("TCP-XM option: " .. text)
	item:add(tcpxm.fields.kind, range(0, 1))
	item:add(tcpxm.fields.length, range(1, 1))
	item:add(tcpxm.fields.experiment, range(2, 2))
	if value then
		item:add(tcpxm.fields[name], value)
	else
		item:add(tcpxm.fields[name], true)
	end
end

-- Our options among those of one segment, and whether all of them fit.
local function find(range)
	local found = {}
	local at, stop = 0, range:len()
	while at < stop do
		local kind = range(at, 1):uint()
		local length = 1
		if kind == 0 then
			return found, true
		elseif kind ~= 1 then
			length = at + 1 < stop and range(at + 1, 1):uint() or 0
			if length < 2 or at + length > stop then
				return found, false
			end
			local experimental = (kind == GROUP or kind == OTHER) and length >= 4
			if experimental and range(at + 2, 2):uint() == EXPERIMENT then
				table.insert(found, range(at, length))
			end
		end
		at = at + length
	end
	return found, true
end

local function options(tree, range)
	local found, fit = find(range)
	for _, one in ipairs(found) do
		if fit then
			option(tree, one)
		else
			tree:add(tcpxm.proto, one):add_proto_expert_info(tcpxm.malformed, "Malformed: options do not fit")
		end
	end
end

local tcp_options = Field.new("tcp.options")

function tcpxm.proto.dissector(tvb, pinfo, tree)
	for _, info in ipairs({ tcp_options() }) do
		options(tree, info.range)
	end
end

register_postdissector(tcpxm.proto)

-- In UDP: the ports stand in both headers, the checksum is 0, and the header fits.
local carrier = Proto("polycast.tcpxm_udp", "TCP-XM over UDP (polycast)")

function carrier.dissector(tvb, pinfo, tree)
	local item = tree:add(carrier, tvb(0, 0))
	item:set_text("TCP-XM: a TCP segment in UDP")
	local tcp = Dissector.get("tcp")
	-- Wireshark's dissector raises where a segment is cut short.
	if not pcall(tcp.call, tcp, tvb, pinfo, tree) then
		item:add_proto_expert_info(tcpxm.malformed, "Malformed: not a TCP segment")
	end
	pinfo.cols.protocol = "TCP-XM"
	return tvb:captured_len()
end

local function heuristic(tvb, pinfo, tree)
	if tvb:captured_len() < 20 then
		return false
	end
	local header = 4 * tvb(12, 1):bitfield(0, 4)
	local ours = tvb(0, 2):uint() == pinfo.src_port and tvb(2, 2):uint() == pinfo.dst_port
		and tvb(16, 2):uint() == 0 and header >= 20 and header <= tvb:reported_len()
	if ours then
		carrier.dissector(tvb, pinfo, tree)
	end
	return ours
end

carrier:register_heuristic("udp", heuristic)
DissectorTable.get("udp.port"):add_for_decode_as(carrier)
