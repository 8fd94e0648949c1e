package compute_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/internal/testing/patient"
)

func TestAHostsRecordHasWhatChecksOfItsMachineFind(t *testing.T) {
	t.Parallel()
	c, next := newCloud(t), make(chan []croft.Finding)
	c.diagnose = func(ctx context.Context) []croft.Finding {
		select {
		case found := <-next:
			return found
		case <-ctx.Done():
			return []croft.Finding{{Level: croft.FindingFail, Check: "machine", Found: "the check was interrupted"}}
		}
	}
	agent := c.start()
	recorded := func() []croft.Finding {
		t.Helper()
		hosts, err := agent.Registry.Hosts(t.Context(), c.host.ID)
		if err != nil {
			t.Fatal(err)
		}
		return hosts[c.host.ID].Findings
	}
	if found := recorded(); found != nil {
		t.Errorf("before the first check it has %v", found)
	}
	slow := croft.Finding{Level: croft.FindingWarn, Check: "clock", Found: "it is \x1b[31mslow", Do: "set it"}
	next <- []croft.Finding{slow}
	slow.Found = "it is  [31mslow"
	patient.Until(t, "the record has the finding", func() bool {
		return slices.Equal(recorded(), []croft.Finding{slow})
	})
	many := slices.Repeat([]croft.Finding{{Level: croft.FindingFail, Check: "disk", Found: strings.Repeat("x", 1<<20)}},
		1000)
	next <- many
	patient.Until(t, "the record has several findings", func() bool { return len(recorded()) > 1 })
	if found := recorded(); len(found) != croft.MaxFindings || len(found[0].Found) > 1000 {
		t.Errorf("it has %d findings, the first with %d bytes", len(found), len(found[0].Found))
	}
	next <- nil
	patient.Until(t, "the record has none", func() bool { found := recorded(); return found != nil && len(found) == 0 })
	c.stop()
	if found := recorded(); len(found) != 0 {
		t.Errorf("after an interrupted check it has %v", found)
	}
}

// An agent that does not serve its host writes no record. Its findings are in the record as soon as it serves the host.
func TestFindingsWaitUntilTheAgentServesItsHost(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	first := c.start()
	stopFirst := c.stop
	checked := make(chan struct{}, 1)
	c.diagnose = func(ctx context.Context) []croft.Finding {
		select {
		case checked <- struct{}{}:
		default:
			<-ctx.Done()
		}
		return []croft.Finding{{Level: croft.FindingWarn, Check: "clock"}}
	}
	recorded := func() []croft.Finding {
		t.Helper()
		hosts, err := first.Registry.Hosts(t.Context(), c.host.ID)
		if err != nil {
			t.Fatal(err)
		}
		return hosts[c.host.ID].Findings
	}
	ready := make(chan struct{})
	c.launch(func() { close(ready) })
	<-checked
	if found := recorded(); found != nil {
		t.Errorf("while another agent serves the host, the record has %v", found)
	}
	stopFirst()
	<-ready
	patient.Until(t, "the record has the finding", func() bool { return len(recorded()) == 1 })
}
