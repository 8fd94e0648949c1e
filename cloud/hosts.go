package cloud

import (
	"context"

	"croft"
	"croft/internal/nearest"
)

// HostCalled returns the host with this ID or, if there is none, with this name. NotFound.
func HostCalled(ctx context.Context, hosts Hosts, idOrName string) (croft.HostID, error) {
	all, err := hosts.Records(ctx)
	if err != nil {
		return "", err
	}
	if _, known := all[croft.HostID(idOrName)]; known {
		return croft.HostID(idOrName), nil
	}
	var names []string
	for _, h := range all {
		if h.Name == idOrName {
			return h.ID, nil
		}
		names = append(names, h.Name)
	}
	return "", croft.Errorf(croft.NotFound, "there is no host %q%s", idOrName, nearest.Hint(idOrName, names))
}
