// Package gate gives agents on untrusted hosts restricted access to etcd and Placement. Its Server, in the control
// process, serves the interfaces of compute over HTTP/2 and checks each call against the host that the caller's
// certificate names. Its Client, on the host, implements those interfaces, so that an agent sees no difference. One
// table, policy, lists what a host may do; nothing else is served.
package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"croft"
	"croft/hosts/audit"
)

// Prefix is the path at which a Server must be mounted.
const Prefix = "/v1/agent/"

// Each end of a stream sends a line every beatEvery, and treats a peer that is silent for silence as lost. The end
// of an agent or of its connection is noticed at once; a cut network, when the agent's lease in etcd would expire.
const (
	beatEvery = 3 * time.Second
	silence   = 10 * time.Second
)

// ErrRefused says that a host requested something that is not its own. It has no kind: an honest agent never
// gets it, and no reaction to a kind would be right.
var ErrRefused = errors.New("the gate refuses")

// errCrowded says that a host exceeds its limits and may retry soon.
var errCrowded = croft.Errorf(croft.Unavailable, "this host asks for too much at once; ask again in a moment")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// failure is an error on the wire.
type failure struct {
	Kind  croft.Kind `json:"kind,omitempty"`
	Error string     `json:"error"`
}

// status returns the HTTP status for an error.
func status(err error) int {
	switch {
	case errors.Is(err, ErrRefused):
		return http.StatusForbidden
	case errors.Is(err, errCrowded):
		return http.StatusTooManyRequests
	}
	return croft.HTTPStatus(err)
}

// The wire forms of nouns include the fields that only their store knows.
type (
	orderMessage struct {
		croft.Order
		Revision int64 `json:"revision,omitempty"`
		Created  int64 `json:"create_revision,omitempty"` // 0: from a program of schema 1.7
		Death    int64 `json:"host_death,omitempty"`
	}
	// arrival ends an order to arrive.
	arrival struct {
		orderMessage
		Failure string `json:"failure,omitempty"`
	}
	instance struct {
		croft.Instance
		Revision int64 `json:"revision,omitempty"`
		Created  int64 `json:"create_revision,omitempty"` // 0: from a program of schema 1.7
	}
	host struct {
		croft.Host
		Token string `json:"token,omitempty"`
	}
)

func sendOrder(o croft.Order) orderMessage {
	return orderMessage{o, o.Revision, o.CreateRevision, o.HostDeath}
}

func (o orderMessage) noun() croft.Order {
	o.Order.Revision, o.Order.CreateRevision, o.Order.HostDeath = o.Revision, o.Created, o.Death
	return o.Order
}

func sendInstance(i croft.Instance) instance { return instance{i, i.Revision, i.CreateRevision} }

func (i instance) noun() croft.Instance {
	i.Instance.Revision, i.Instance.CreateRevision = i.Revision, i.Created
	return i.Instance
}

// volume is the wire form of a volume.
type volume struct {
	croft.Volume
	Revision int64 `json:"revision,omitempty"`
}

func (v volume) noun() croft.Volume {
	v.Volume.Revision = v.Revision
	return v.Volume
}

// aboutVolume names a volume of a host, and what the host reports about it.
type aboutVolume struct {
	Host     croft.HostID     `json:"host"`
	Volume   croft.VolumeID   `json:"volume"`
	SizeGB   int64            `json:"size_gb,omitempty"`
	Error    string           `json:"error,omitempty"`
	Instance croft.InstanceID `json:"instance,omitempty"`
	Snapshot croft.Snapshot   `json:"snapshot,omitzero"` // how a snapshot was taken
	At       time.Time        `json:"at,omitzero"`       // when it was rolled back to
}

// aboutImage names a copy of an image on a host, and what the host reports about it.
type aboutImage struct {
	Host     croft.HostID     `json:"host"`
	Image    croft.ImageID    `json:"image"`
	Instance croft.InstanceID `json:"instance,omitempty"` // that needs it
	File     croft.ImageFile  `json:"file,omitzero"`
	Error    string           `json:"error,omitempty"`
	Final    bool             `json:"final,omitempty"`
}

// hostEvidence is the evidence about one host.
type hostEvidence struct {
	Hosts        map[croft.HostID]croft.Host `json:"hosts"`
	Instances    []instance                  `json:"instances"`
	Orders       []orderMessage              `json:"orders"`
	Observations []croft.Observation         `json:"observations"`
	Volumes      []volume                    `json:"volumes,omitempty"`
}

func sendEvidence(e audit.Evidence) hostEvidence {
	sent := hostEvidence{Hosts: e.Hosts, Observations: e.Observations}
	for _, inst := range e.Instances {
		sent.Instances = append(sent.Instances, sendInstance(inst))
	}
	for _, o := range e.Orders {
		sent.Orders = append(sent.Orders, sendOrder(o))
	}
	for _, v := range e.Volumes {
		sent.Volumes = append(sent.Volumes, volume{v, v.Revision})
	}
	return sent
}

func (h hostEvidence) noun(only croft.HostID) audit.Evidence {
	e := audit.Evidence{
		Only: only, Hosts: h.Hosts, Instances: map[croft.InstanceID]croft.Instance{}, Observations: h.Observations,
		Claims: map[croft.HostID]map[croft.InstanceID]croft.Resources{}, Contents: map[croft.HostID]audit.Contents{},
		Volumes: map[croft.VolumeID]croft.Volume{},
	}
	if e.Hosts == nil {
		e.Hosts = map[croft.HostID]croft.Host{}
	}
	for _, i := range h.Instances {
		e.Instances[i.ID] = i.noun()
	}
	for _, o := range h.Orders {
		e.Orders = append(e.Orders, o.noun())
	}
	for _, v := range h.Volumes {
		e.Volumes[v.ID] = v.noun()
	}
	return e
}

// hostEvidenceCall is the wire name of HostEvidence, older than the method's name.
const hostEvidenceCall = "HostBooks"

// evidenceQuery asks for the evidence about a host, and for records of more instances.
type evidenceQuery struct {
	Host croft.HostID       `json:"host"`
	More []croft.InstanceID `json:"more,omitempty"`
}

// line is one line of a stream, in either direction. An empty line is a heartbeat.
type line struct {
	Instance croft.InstanceID `json:"instance,omitempty"` // server, in WatchOrders: wake this instance
	Volume   croft.VolumeID   `json:"volume,omitempty"`   // server, in WatchVolumes: wake this volume
	Image    croft.ImageID    `json:"image,omitempty"`    // server, in WatchImages: wake the copy of this image

	Job string `json:"job,omitempty"` // server, in WatchJobs: wake this job

	Agent *croft.Agent `json:"agent,omitempty"` // client, in Serve: the first line
	Known bool         `json:"known,omitempty"` // client: the host has been announced and may become alive
	May   *bool        `json:"may,omitempty"`   // client: the answer to Lock
	Lock  *agentLock   `json:"seat,omitempty"`  // server: the holder of the host's agent lock changed
}

// agentLock says who holds the agent lock: the client if there is no rival.
type agentLock struct {
	Rival *croft.Agent `json:"rival,omitempty"`
}

// maxLine limits a line of a stream, in bytes.
const maxLine = 16 << 10

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("gate: encode %T: %v", v, err)) // our own plain structs: cannot happen
	}
	return append(text, '\n')
}
