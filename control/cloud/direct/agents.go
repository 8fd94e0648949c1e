package direct

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/hosts/audit"
	"croft/internal/endpoint"
	"croft/internal/plain"
	"croft/trust/pki"
)

var _ audit.Agents = agents{}

// agents calls the agents of hosts over HTTP, or over TLS if they have certificates.
type agents struct{ store *etcdstore.Store }

// client returns a client for the agent of a host. Over TLS the agent must present this host's certificate.
func (a agents) client(ctx context.Context, h croft.Host) (*http.Client, error) {
	if !endpoint.IsTLS(h.API) {
		return endpoint.AgentClient(nil), nil
	}
	trusted, err := a.store.Trust.Authority(ctx)
	if err != nil {
		return nil, fmt.Errorf("verify host %s: %w", h.Name, err)
	}
	return endpoint.AgentClient(pki.Client(trusted, a.store.Partition(), pki.HostOnly(h.ID))), nil
}

// said sanitizes another machine's response and shortens it to one line for a terminal.
func said(body []byte) string { return strings.TrimSpace(plain.Cut(string(body), plain.Longest)) }

// Contents implements audit.Agents.
func (a agents) Contents(ctx context.Context, h croft.Host) (audit.Contents, error) {
	var found audit.Contents
	body, err := a.call(ctx, http.MethodGet, h, "/v1/holding")
	if err != nil {
		return found, err
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return found, croft.Errorf(croft.Unavailable, "ask host %s for its contents: %w", h.Name, err)
	}
	isNone := func(id croft.InstanceID) bool { _, err := croft.ParseInstanceID(string(id)); return err != nil }
	found.Guests = slices.DeleteFunc(found.Guests, func(g audit.Guest) bool { return isNone(g.Instance) })
	found.Directories = slices.DeleteFunc(found.Directories, isNone)
	return found, nil
}

// RemoveFiles implements audit.Agents.
func (a agents) RemoveFiles(ctx context.Context, h croft.Host, id croft.InstanceID) error {
	_, err := a.call(ctx, http.MethodDelete, h, "/v1/instances/"+string(id)+"/files")
	return err
}

// maxContents bounds a host's response.
const maxContents = 16 << 20

func (a agents) call(ctx context.Context, method string, h croft.Host, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(h.API, "/")+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask host %s: %w", h.Name, err)
	}
	request.Header.Set("Authorization", "Bearer "+h.Token)
	client, err := a.client(ctx, h)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, croft.Errorf(croft.Unavailable,
			"its agent does not answer at %s (%w); is it running there, and does a firewall let you in?", h.API,
			unwrapped(err))
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxContents))
	switch {
	case err != nil:
		return nil, croft.Errorf(croft.Unavailable, "its agent does not answer at %s (%w)", h.API, err)
	case answer.StatusCode == http.StatusConflict:
		return nil, croft.Errorf(croft.Conflict, "%s", said(body))
	case answer.StatusCode >= http.StatusMultipleChoices:
		return nil, croft.Errorf(croft.Unavailable, "its agent answers %s at %s: %s",
			plain.Cut(answer.Status, plain.Longest),
			h.API, said(body))
	}
	return body, nil
}

// unwrapped removes the outer part of an error, which repeats the address.
func unwrapped(err error) error {
	if inner, ok := err.(interface{ Unwrap() error }); ok && inner.Unwrap() != nil {
		return inner.Unwrap()
	}
	return err
}

// refused returns the error in an agent's response to an attempt.
func refused(attempt string, answer *http.Response) error {
	kind := croft.Unavailable
	switch answer.StatusCode {
	case http.StatusNotFound:
		kind = croft.NotFound
	case http.StatusConflict:
		kind = croft.Conflict
	case http.StatusInsufficientStorage:
		kind = croft.NoCapacity
	case http.StatusBadRequest:
		kind = croft.Invalid
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, plain.Longest)) // if the read fails, the status is enough
	return croft.Errorf(kind, "%s: %s", attempt, cmp.Or(said(text), said([]byte(answer.Status))))
}

// Usages implements cloud.Monitor.
func (a agents) Usages(ctx context.Context, h croft.Host) ([]compute.Usage, error) {
	body, err := a.call(ctx, http.MethodGet, h, "/v1/usages")
	if err != nil {
		return nil, err
	}
	var all []compute.Usage
	if err := json.Unmarshal(body, &all); err != nil { // the agent may have another version
		return nil, croft.Errorf(croft.Unavailable, "ask host %s what its guests use: %w", h.Name, err)
	}
	return all, nil
}

// maxHistory limits the answer with the history of one guest, in bytes.
const maxHistory = 1 << 20

// History implements cloud.Monitor.
func (a agents) History(ctx context.Context, st croft.Status) (h compute.UsageHistory, err error) {
	const verb = "read the usage of"
	answer, err := consoles{a}.ask(ctx, st, verb, http.MethodGet, "/usage", false)
	if err != nil {
		return h, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return h, refused(fmt.Sprintf("%s %s on host %s", verb, st.Instance.Name, st.Host.Name), answer)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxHistory)).Decode(&h); err != nil {
		return h, unreached(ctx, st, verb, false, err)
	}
	return h.Bounded(), nil
}
