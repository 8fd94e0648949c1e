package api

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/hostkey"
	"croft/internal/redact"
	"croft/schedule"
	"croft/schedule/topology"
	"croft/tenant/objects"
)

// Instance is an instance as people see it: its request, its current state and, for operators, its host.
// `schedule show` and `schedule list` print it with -o json and yaml.
type Instance struct {
	// Name, unique in the project.
	Name string `json:"name"`
	// State in one word: scheduling, held, ordered, pending, fetching, defining, booting, running, stopped, moving,
	// failed, unknown, destroying, removing, lost or gone.
	State string `json:"state"`
	// Address at which people reach it; empty unless it runs.
	Address string `json:"address"`
	// Name of its host; empty if it is on none, and for callers who are not operators.
	Host string `json:"host"`
	// UUID of its host; empty as the name is.
	HostID croft.HostID `json:"host_id"`
	// UUID of the instance.
	ID      croft.InstanceID `json:"id" format:"uuid"`
	Project croft.Project    `json:"project"` // the project that it belongs to
	// UUID of the cluster that it is part of; left out if it is part of none.
	Cluster croft.ClusterID `json:"cluster,omitempty" format:"uuid"`
	Created time.Time       `json:"created"` // when it was requested
	// When it is destroyed, or its claim is released; left out: never.
	Expires time.Time `json:"expires,omitzero"`
	// It is neither destroyed, nor is its disk replaced, until the protection ends.
	Protected bool `json:"protected,omitempty"`
	// Number of the newest order.
	Generation int64 `json:"generation"`
	// It no longer exists.
	Gone bool `json:"gone,omitempty"`

	// The host has not acted on the newest order yet: state and error are about an earlier one.
	Pending bool `json:"pending,omitempty"`
	// State that its host reported last, if that is another word than state.
	Observed croft.State `json:"observed_state,omitempty"`
	// Reason of a failure or of a loss, in one sentence; empty: none.
	Error string `json:"error"`
	// Kind of the error of its host, such as no_capacity.
	ErrorKind croft.Kind `json:"error_kind,omitempty"`
	// How the guest went off, if its restart policy leaves it off: guest or failure.
	Ended croft.End `json:"ended,omitempty"`
	// How it was lost with its host, in the state lost. Only operators see which host.
	Lost *croft.Loss `json:"lost,omitempty"`
	// All addresses of the guest, while it runs.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	MAC       string       `json:"mac,omitempty"` // of its network card
	// Bytes of the image that its host has fetched; in the state moving, of its disk that its new host has.
	Progress *croft.Progress `json:"progress,omitempty"`
	// Steps of the newest boot.
	Events []croft.Event `json:"events,omitempty"`
	// How the guest's set-up ended, as the guest reports it.
	CloudInit *croft.CloudInit `json:"cloud_init,omitempty"`

	// The request, in the form in which requests have it.
	Query     string          `json:"query"`
	Resources croft.Resources `json:"resources"` // what it claims, by resource class
	// Name, at that time, of the size that its resources come from; left out: none.
	Size string `json:"size,omitempty"`
	// Image, under the name that the request gave.
	Image string `json:"image"`
	// Address from which hosts fetch the image, without a password or a signature.
	ImageURL string `json:"image_url,omitempty"`
	croft.GuestSettings
	croft.InstanceSettings
	// The CD drive is empty for good: the ISO of its machine is ejected.
	Ejected bool `json:"ejected,omitempty"`
	// Readable by the guest.
	Tags     map[string]string `json:"tags"`
	In       []croft.Bound     `json:"in,omitempty"`        // the locations and aggregates that its host had to be in
	Where    []string          `json:"where,omitempty"`     // conditions on the host, which all had to hold
	WhereNot []string          `json:"where_not,omitempty"` // conditions on the host, none of which might hold
	// Instances, aggregates and locations that it is near to or far from. Only operators see the locations.
	Near []croft.Near `json:"near,omitempty"`
	// Policy of CRUSH that chose its host, as crush:NAME.
	Policy           string `json:"policy,omitempty"`
	PolicyGeneration int64  `json:"policy_generation,omitempty"` // of the policy that chose the host

	// Properties that people noted, as far as the caller may read them. Events, and answers to other
	// changes than changeInstance, leave them out.
	Labels map[string]objects.Value `json:"labels,omitempty"`
	// Names of the volumes that are attached to it. Only the answer of getInstance has them.
	Volumes []string `json:"volumes,omitempty"`
	// Public key of the guest's SSH server.
	HostKey string `json:"host_key,omitempty"`
	// The other machines of its cluster.
	Peers []croft.Peer `json:"peers,omitempty"`

	// Whether its host is alive; left out if it is on no host.
	HostAlive *bool `json:"host_alive,omitempty"`
	// Its guest is simulated, so it never reports the end of its set-up.
	Simulated bool `json:"simulated,omitempty"`

	// When its silent host reported last. Only operators see it and the fields that follow.
	HostSeen time.Time `json:"host_seen,omitzero"`
	// Where its host stands, such as site1/row2/rack7.
	Location   string          `json:"location,omitempty"`
	Hypervisor string          `json:"hypervisor,omitempty"` // kvm, qemu or sim
	Refused    []croft.Refusal `json:"refused,omitempty"`    // hosts that the policy chose before, and why not
	// UUID of the host to which its disk is being copied.
	MovingTo croft.HostID `json:"moving_to,omitempty"`
	// Why it is still on its host after its last move.
	Unmoved string `json:"unmoved,omitempty"`
	// The backup that its disks are being made from, or were last made from; left out: none.
	Backup *InstanceBackup `json:"backup,omitempty"`
	// Name of the shared storage that its disk is on, as far as the caller may know it, or shared; left out: it is on
	// the host.
	OnStorage string `json:"on_storage,omitempty"`
	// Name of the last backup of a lost instance, to restore it from; left out: there are none. Lists leave it
	// out, too.
	LastBackup string `json:"last_backup,omitempty"`
	// The internal records; only in answers to operators who ask for them.
	Internal *croft.Status `json:"internal,omitempty"`

	// Revision of the record.
	Revision int64 `json:"-"`
	// Entity tag of an answer with labels; empty: it has none.
	ETag string `json:"-"`
}

// Label shows the labels of an instance, as far as the caller may read them.
func (i *Instance) Label(labels objects.Object) {
	i.Labels, i.ETag = labels.Properties, InstanceTag(i.Revision, labels.Generation)
}

// InstanceTag returns the entity tag of an instance: the revisions of its record, which also has the expiry, and of its
// labels. It fits no later instance of the same name or UUID, because no two writes have the same revision.
func InstanceTag(record, labels int64) string { return fmt.Sprintf(`"%d-%d"`, record, labels) }

// EntityTag returns the header ETag of an answer with the instance; empty: it has none.
func (i Instance) EntityTag() string { return i.ETag }

// InstanceBackup is the backup that an instance has its disks from.
type InstanceBackup struct {
	Name string `json:"name"` // name of the backup
	// failed: the instance keeps its former disks, and has none if it was to be built from the backup
	State string `json:"state" enum:"restoring,restored,failed"`
	Error string `json:"error"` // why it was not restored
	// Bytes of its disks that its host has restored; left out: none yet, or it is not being restored.
	Progress *croft.Progress `json:"progress,omitempty"`
}

// States of InstanceBackup.
const (
	Restoring  = "restoring"
	Restored   = "restored"
	Unrestored = "failed"
)

func restoreState(st croft.Status) string {
	switch {
	case st.Instance.Backup.Generation == 0, st.Unbuilt():
		return Unrestored
	case st.Restoring():
		return Restoring
	}
	return Restored
}

// InstanceOf returns a status as people see it.
func InstanceOf(st croft.Status) Instance {
	inst, spec := st.Instance, st.Instance.Spec
	i := Instance{ID: inst.ID, Project: inst.Project, Name: inst.Name, Cluster: inst.Cluster, Created: inst.Created,
		Expires: inst.Expires, Protected: inst.Protected, Generation: inst.Generation, State: schedule.Describe(&st),
		Lost:    inst.Lost,
		Address: schedule.Address(&st), Addresses: schedule.Addresses(&st),
		Query: cmp.Or(spec.Query, spec.Resources.String()), Resources: spec.Resources,
		Size:     spec.Size,
		ImageURL: redact.Image(spec.Image), GuestSettings: spec.GuestSettings,
		InstanceSettings: spec.InstanceSettings, Tags: spec.Tags, In: spec.In, Where: spec.Where,
		WhereNot: spec.WhereNot, Near: spec.Near, HostKey: publicKey(spec.HostKey),
		Peers: spec.Peers, HostID: inst.Host, Refused: inst.Refused, Unmoved: inst.Unmoved,
		Revision: inst.Revision}
	if inst.Backup != nil {
		i.Backup = &InstanceBackup{Name: inst.Backup.Name, State: restoreState(st), Error: inst.Backup.Error}
		if st.Unbuilt() {
			i.Backup.Error = st.Observation.Error
		}
	}
	if inst.Storage != "" {
		i.OnStorage = croft.StorageShared
		if st.Host != nil {
			m, _ := st.Host.Mounts(string(inst.Storage))
			i.OnStorage = cmp.Or(m.Name, i.OnStorage)
		}
	}
	if inst.Copying {
		i.MovingTo = inst.Moving
	}
	i.Machine.ISO, i.Ejected = redact.Image(i.Machine.ISO), inst.Ejected
	i.Image = cmp.Or(redact.Image(spec.ImageName), i.ImageURL)
	if i.Tags == nil {
		i.Tags = map[string]string{}
	}
	if p := spec.Policy; p != nil {
		i.Policy, i.PolicyGeneration = "crush:"+p.Name, p.Generation
	}
	if o := st.Observation; o != nil {
		i.Error, i.ErrorKind, i.Ended, i.MAC = o.Error, o.ErrorKind, o.Ended, o.MAC
		i.Progress, i.Events, i.CloudInit = o.Progress, o.Events, o.CloudInit
		if string(o.State) != i.State {
			i.Observed = o.State
		}
	}
	i.Pending = inst.State == croft.StateScheduled &&
		(st.Observation == nil || st.Observation.Generation < inst.Generation)
	if inst.Lost != nil {
		i.Error = "lost: " + inst.Lost.Reason
	}
	if h := st.Host; h != nil {
		i.HostAlive, i.Simulated = new(h.Alive), h.NoSetUp
		i.Host, i.Hypervisor = h.Name, h.VirtType
		if at, err := topology.Of(*h); err == nil {
			i.Location = at.Parent().String()
		}
		if !h.Alive {
			i.HostSeen = h.Seen
		}
	}
	return i
}

// InstanceTerms is the part of an instance that the terms of lists are compared with.
type InstanceTerms struct {
	ID     croft.InstanceID         `json:"id"`
	Name   string                   `json:"name"`
	State  string                   `json:"state"`
	Host   string                   `json:"host"`
	HostID croft.HostID             `json:"host_id"`
	Image  string                   `json:"image"`
	Labels map[string]objects.Value `json:"labels"`
}

// TermsOf returns what the terms of a list are compared with, without labels. It costs a small part of InstanceOf.
func TermsOf(st *croft.Status, of Terms) InstanceTerms {
	i := InstanceTerms{ID: st.Instance.ID, Name: st.Instance.Name, State: schedule.Describe(st),
		HostID: st.Instance.Host}
	if of.about("image", of.Image) {
		spec := &st.Instance.Spec
		i.Image = redact.Image(cmp.Or(spec.ImageName, spec.Image))
	}
	if st.Host != nil {
		i.Host = st.Host.Name
	}
	return i
}

// Reported returns the state that its host reported last; empty: none.
func (i Instance) Reported() croft.State {
	state := croft.State(i.State)
	if i.Observed == "" && slices.Contains(croft.ObservedStates, state) {
		return state
	}
	return i.Observed
}

// Records returns the records without their secrets.
func Records(st croft.Status) *croft.Status {
	showPublic(&st.Instance.Spec)
	if st.Order != nil {
		o := *st.Order
		showPublic(&o.Spec)
		if o.Move != nil {
			o.Move = &croft.Move{Host: o.Move.Host, Then: o.Move.Then}
		}
		st.Order = &o
	}
	return &st
}

func showPublic(s *croft.Spec) {
	s.HostKey, s.ClusterKey = publicKey(s.HostKey), publicKey(s.ClusterKey)
	s.Image, s.ImageName = redact.Image(s.Image), redact.Image(s.ImageName)
	s.Machine.ISO = redact.Image(s.Machine.ISO)
	if s.ISO != nil {
		s.ISO = &croft.ISO{Image: redact.Image(s.ISO.Image), Public: s.ISO.Public}
	}
}

// publicKey returns the public half of a key, or the key if it is a public one; empty: the key is missing or invalid.
func publicKey(key string) string {
	if strings.HasPrefix(key, "ssh-") {
		return key
	}
	public, err := hostkey.Public(key)
	if err != nil {
		return ""
	}
	return public
}
