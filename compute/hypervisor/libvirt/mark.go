package libvirt

import (
	"encoding/xml"
	"errors"
	"strings"

	"libvirt.org/go/libvirt"

	"croft"
	"croft/compute"
)

// namespace identifies croft's element in a domain's metadata. It changes when the meaning of the element changes.
const namespace = "https://croft/1"

// prefix starts the names of croft's domains; the instance ID follows.
const prefix = "croft-"

// mark is croft's element in a domain's metadata: it identifies the domain as croft's and has the data that croft needs
// without the instance's record.
type mark struct {
	XMLName    xml.Name          `xml:"instance"`
	Namespace  string            `xml:"xmlns,attr,omitempty"` // libvirt does not return it
	Partition  croft.PartitionID `xml:"partition,attr"`
	Generation int64             `xml:"generation,attr"`
	Started    int64             `xml:"started,attr,omitempty"` // as in compute.Domain
	// Digest is the digest of the definition as croft wrote it; libvirt's rendering of the definition differs.
	Digest  string        `xml:"digest,attr,omitempty"`
	Project croft.Project `xml:"project,attr,omitempty"` // as in compute.Ordered
	Open    string        `xml:"open,attr,omitempty"`    // as in compute.Ordered, separated by blanks
	Name    string        `xml:"name,attr,omitempty"`    // as in compute.Ordered
	TPM     string        `xml:"tpm,attr,omitempty"`     // tpmNew or tpmMade; empty: it has none
	CD      string        `xml:"cd,attr,omitempty"`      // cdIn; empty: the CD drive is empty, or there is none
	NICs    []markNIC     `xml:"nic"`
	PCI     []markPCI     `xml:"pci"`
}

// cdIn is the markCD of a domain whose CD drive has an ISO.
const cdIn = "in"

type markNIC struct {
	MAC     string `xml:"mac,attr"`
	Network string `xml:"network,attr,omitempty"`
	Bridge  string `xml:"bridge,attr,omitempty"`
	Address string `xml:"address,attr,omitempty"` // reserved for it on Network
	Chosen  bool   `xml:"chosen,attr,omitempty"`  // the request names this address
}

func newMark(m compute.Machine) mark {
	k := mark{Namespace: namespace, Partition: m.Partition, TPM: newTPM(m)}
	if m.CD != "" {
		k.CD = cdIn
	}
	k.set(m.Ordered)
	k.setPCI(m.PCI)
	for _, n := range m.NICs {
		nic := markNIC{MAC: strings.ToLower(n.MAC), Network: n.Network, Address: n.Address,
			Chosen: n.Address != ""}
		if n.Network == "" {
			nic.Bridge = n.Bridge
		}
		k.NICs = append(k.NICs, nic)
	}
	return k
}

// set copies the values from the order.
func (k *mark) set(m compute.Ordered) {
	k.Generation, k.Project, k.Open = m.Generation, m.Project, strings.Join(m.Open, " ")
	k.Name = m.Name
}

// get returns the values from the order.
func (k *mark) get() compute.Ordered {
	return compute.Ordered{Generation: k.Generation, Project: k.Project, Open: strings.Fields(k.Open), Name: k.Name}
}

// parseMark reads the element as libvirt returns it.
func parseMark(s string) (mark, error) {
	var k mark
	if err := xml.Unmarshal([]byte(s), &k); err != nil {
		return mark{}, err
	}
	if k.Partition == "" {
		return mark{}, errors.New("it names no partition")
	}
	return k, nil
}

// errNoMark: the domain is not croft's.
var errNoMark = errors.New("the domain has no mark of croft")

// readMark returns the mark of a domain; errNoMark: none exists; Conflict: it is unreadable.
func readMark(dom *libvirt.Domain) (mark, error) {
	// The persistent definition is authoritative; a running domain that was undefined has only the live one.
	s, err := dom.GetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, namespace, libvirt.DOMAIN_AFFECT_CONFIG)
	if is(err, libvirt.ERR_OPERATION_INVALID, libvirt.ERR_INVALID_ARG) {
		s, err = dom.GetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, namespace, libvirt.DOMAIN_AFFECT_LIVE)
	}
	if is(err, libvirt.ERR_NO_DOMAIN_METADATA) {
		return mark{}, errNoMark
	}
	if err != nil {
		return mark{}, err
	}
	k, err := parseMark(s)
	if err != nil {
		return mark{},
			croft.Errorf(croft.Conflict, "the mark of the domain cannot be read, so croft does not touch it: %w", err)
	}
	return k, nil
}

// instanceOf returns the instance ID from a domain name of croft's form, without asking libvirt. Only the
// mark proves that the domain is croft's.
func instanceOf(dom *libvirt.Domain) (croft.InstanceID, bool) {
	name, err := dom.GetName()
	if err != nil {
		return "", false
	}
	uuid, err := dom.GetUUIDString()
	if err != nil || name != prefix+uuid {
		return "", false
	}
	return croft.InstanceID(uuid), true
}

// lookup finds the domain of an instance and its mark: NotFound if none exists; errNoMark and Conflict as in readMark.
// Without an error, the caller frees the domain.
func lookup(c *libvirt.Connect, id croft.InstanceID) (*libvirt.Domain, mark, error) {
	dom, err := c.LookupDomainByUUIDString(string(id))
	if err != nil {
		return nil, mark{}, err
	}
	k, err := readMark(dom)
	if err != nil {
		_ = dom.Free()
		return nil, mark{}, err
	}
	return dom, k, nil
}

// with calls f with the domain of an instance. NotFound: none exists, or it is not croft's.
func with(c *libvirt.Connect, id croft.InstanceID, f func(*libvirt.Domain, mark) error) error {
	dom, k, err := lookup(c, id)
	if errors.Is(err, errNoMark) || is(err, libvirt.ERR_NO_DOMAIN) {
		return croft.Errorf(croft.NotFound, "it is not defined on this host")
	}
	if err != nil {
		return err
	}
	defer dom.Free()
	return f(dom, k)
}

// write replaces a domain's mark.
func (k mark) write(dom *libvirt.Domain, impact libvirt.DomainModificationImpact) error {
	k.XMLName, k.Namespace = xml.Name{Local: "instance"}, ""
	text, err := xml.Marshal(k)
	if err != nil {
		return err
	}
	return dom.SetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, string(text), "croft", namespace, impact)
}

// noteStarted records the generation for which the domain was started (0: stopped) in its definition, which
// survives restarts of libvirtd and the host.
func (k mark) noteStarted(dom *libvirt.Domain, generation int64) error {
	made := generation != 0 && k.TPM == tpmNew
	if k.Started == generation && !made {
		return nil
	}
	k.Started = generation
	if made {
		k.TPM = tpmMade
	}
	err := k.write(dom, libvirt.DOMAIN_AFFECT_CONFIG)
	if persistent, perr := dom.IsPersistent(); err != nil && perr == nil && !persistent {
		return nil // undefined meanwhile: it ends with its process
	}
	return err
}
