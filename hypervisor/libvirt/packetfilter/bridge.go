package packetfilter

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"croft"
)

// noLinkLocalLearn is the kernel's BR_BOOLOPT_NO_LL_LEARN.
const noLinkLocalLearn = 1 << 0

// LearnNothingUnfiltered keeps a bridge from learning MAC locations from frames of its own protocols, such as
// STP. The kernel passes those to no packet filter: with one of them a guest could redirect another guest's
// traffic to itself.
//
// NotFound: there is no such bridge.
func LearnNothingUnfiltered(bridge string) error {
	link, err := netlink.LinkByName(bridge)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return croft.Errorf(croft.NotFound, "there is no network interface %s", bridge)
	}
	if err != nil {
		return fmt.Errorf("find the bridge %s: %w", bridge, err)
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(link.Attrs().Index)
	req.AddData(msg)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	options := binary.NativeEndian.AppendUint32(nil, noLinkLocalLearn)    // the values
	options = binary.NativeEndian.AppendUint32(options, noLinkLocalLearn) // the mask of options to change
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(unix.IFLA_BR_MULTI_BOOLOPT, options)
	req.AddData(info)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("keep the bridge %s from learning from frames that nobody filters: %w", bridge, err)
	}
	return nil
}
