package operator

import (
	"cmp"
	"log/slog"
	"time"

	"croft"
)

// Config joins an Operator to the rooms that it needs.
type Config struct {
	Partition croft.PartitionID // required: whose orders it writes
	Hosts     Hosts             // required, as all that follow
	Members   Members
	Records   Records
	Ledger    Ledger
	Claims    Claims
	Agents    Agents

	Pause       time.Duration // between the two looks of an audit; 2 s by default
	AskTimeout  time.Duration // how long an agent may take to answer; 10 s by default
	UndoTimeout time.Duration // how long giving back may take after a failure; 5 s by default
	Log         *slog.Logger  // discards by default
}

// Operator acts on hosts and books. It holds no state of its own.
type Operator struct{ Config }

// New checks the config. It does nothing yet.
func New(c Config) (*Operator, error) {
	if c.Partition == "" || c.Hosts == nil || c.Members == nil || c.Records == nil || c.Ledger == nil ||
		c.Claims == nil || c.Agents == nil {
		return nil, croft.Errorf(croft.Invalid, "operator: Partition and all interfaces are required")
	}
	c.Pause = cmp.Or(c.Pause, 2*time.Second)
	c.AskTimeout = cmp.Or(c.AskTimeout, 10*time.Second)
	c.UndoTimeout = cmp.Or(c.UndoTimeout, 5*time.Second)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Operator{c}, nil
}

// order is an order to a host about an instance, of that generation.
func (o *Operator) order(inst croft.Instance, host croft.HostID, want croft.Want, generation int64) croft.Order {
	return croft.Order{
		Partition: o.Partition, Host: host, Instance: inst.ID, Generation: generation, Want: want,
		Project: inst.Project, Name: inst.Name, Spec: inst.Spec, Issued: time.Now().UTC(),
		Rebooted: inst.Rebooted, Rebuilt: inst.Rebuilt, MovedFrom: inst.MovedFrom, LeftBefore: inst.LeftBefore,
	}
}
