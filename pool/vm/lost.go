package vm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"croft"
	"croft/schedule"
)

// lost returns how a running instance was lost; nil: it was not, or this is unknown. st is nil for an instance
// without a record. A guest that went off and was restarted by its agent is lost as well: it runs, without its
// user's state. The events of such a boot include no definition of a domain.
func lost(st *croft.Status) error {
	switch {
	case st == nil:
		return errors.New("it is gone")
	case st.Instance.State == croft.StateDestroying:
		return errors.New("somebody destroyed it")
	case st.Observation == nil || schedule.Describe(st) == schedule.Unknown:
		return nil
	}
	switch st.Observation.State {
	case croft.StateStopped:
		if st.Observation.Ended != "" {
			return fmt.Errorf("it went off: %s", st.Observation.Ended)
		}
		return errors.New("it went off")
	case croft.StateFailed:
		return errors.New(cmp.Or(st.Observation.Error, "its host gives no reason"))
	}
	has := func(name croft.EventName) bool {
		return slices.ContainsFunc(st.Observation.Events, func(e croft.Event) bool { return e.Name == name })
	}
	if has(croft.EventRunning) && !has(croft.EventDefined) {
		return errors.New("it went off and was started again")
	}
	return nil
}
