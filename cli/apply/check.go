package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"croft"
	"croft/cli/verb"
	"croft/control/api"
)

// check has the server check the requests for new instances, and says which of them no host has room for now. Requests
// that differ only in their names are checked once. Invalid; NotFound; Denied; Conflict.
func (r *run) check(want document, have state, steps []step) error {
	checked := map[string]bool{}
	var errs []error
	for _, s := range steps {
		if s.request == nil {
			continue
		}
		in := api.Candidates{InProject: r.project(), InstanceRequest: checkable(*s.request, want, have)}
		nameless := in
		nameless.ID, nameless.Name = "", ""
		key, err := json.Marshal(nameless)
		if err != nil {
			return err
		}
		if checked[string(key)] {
			continue
		}
		checked[string(key)] = true
		why, err := verb.Asked(r.ctx, r.ExplainRequest, in)
		switch {
		case errors.Is(err, croft.Unavailable) || r.ctx.Err() != nil:
			return err
		case err != nil:
			errs = append(errs, fmt.Errorf("instance %s: %w", s.Name, err))
		case len(why.Fits) == 0:
			r.Say("instance %s has no room now: %v", s.Name, why)
		}
	}
	return errors.Join(errs...)
}

// checkable returns a request without the parts that exist only once earlier changes of the plan are made: volumes that
// are free by then, and instances to be near to.
func checkable(request api.InstanceRequest, want document, have state) api.InstanceRequest {
	planned := func(near string) bool {
		name, _, _ := strings.Cut(near, ":")
		_, exists := have.instances[name]
		return want.names(name) && !exists
	}
	request.Near = slices.DeleteFunc(slices.Clone(request.Near), planned)
	request.Far = slices.DeleteFunc(slices.Clone(request.Far), planned)
	if len(request.Near)+len(request.Far) == 0 {
		request.Distance = ""
	}
	request.Volumes = slices.DeleteFunc(slices.Clone(request.Volumes), func(name string) bool {
		v, exists := have.volumes[name]
		return !exists || v.Instance != ""
	})
	return request
}
