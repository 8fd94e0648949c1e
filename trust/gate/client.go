package gate

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"croft"
	"croft/compute"
	"croft/hosts/audit"
	"croft/internal/failover"
)

var (
	_ compute.Orders    = (*Client)(nil)
	_ compute.Registry  = (*Client)(nil)
	_ compute.Records   = (*Client)(nil)
	_ compute.Inventory = (*Client)(nil)
)

// ClientConfig configures a Client. All fields are required.
type ClientConfig struct {
	Endpoints []string // of control processes, such as https://10.0.0.1:8777, until SetEndpoints; any one suffices
	TLS       *tls.Config
	Host      croft.HostID      // host named by the certificate
	Partition croft.PartitionID // partition that the host joined
}

// Client is an agent's access to its cloud through the gate. It reconnects for as long as it is used, and can
// be created while no gate answers. It must be closed.
type Client struct {
	ClientConfig
	current atomic.Pointer[connection]
	gates   *failover.Endpoints
	slots   chan struct{} // holds a token for each call in flight
	known   orders
}

// NewClient checks the configuration. It does not connect yet.
func NewClient(c ClientConfig) (*Client, error) {
	if len(c.Endpoints) == 0 || c.TLS == nil || c.Host == "" || c.Partition == "" {
		return nil, croft.Errorf(croft.Invalid, "gate: all of the client's configuration is required")
	}
	client := &Client{ClientConfig: c, slots: make(chan struct{}, mostCalls/2)}
	client.gates = failover.New(c.Endpoints)
	client.current.Store(connect(c.TLS))
	return client, nil
}

// Close closes idle connections. Requests in flight end with their contexts, not here.
func (c *Client) Close() error {
	c.current.Load().http.CloseIdleConnections()
	return nil
}

// Partition returns the partition that the host joined.
func (c *Client) Partition() croft.PartitionID { return c.ClientConfig.Partition }

// SetEndpoints replaces the endpoints, at least one. The endpoint in use stays in use if it is among them.
func (c *Client) SetEndpoints(endpoints []string) { c.gates.Set(endpoints) }

// post sends a request to the endpoint in use. Unavailable: it does not answer.
func (c *Client) post(ctx context.Context, k *connection, name string, body io.Reader) (*http.Response, error) {
	endpoint, next := c.gates.Current()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+Prefix+name, body)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "the address of the control process: %w", err)
	}
	answer, err := k.http.Do(request)
	if err != nil {
		next()
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		return nil,
			croft.Errorf(croft.Unavailable,
				"the control process at %s does not answer (%w); does it run, and does a firewall let us in?", endpoint,
				errors.Unwrap(err))
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusForbidden:
			defer k.http.CloseIdleConnections()
			fallthrough
		case http.StatusServiceUnavailable: // the certificate may have been renewed since
			c.renew(k)
		}
		return nil, c.failed(endpoint, answer)
	}
	return answer, nil
}

// failed returns the error in the answer of a control process.
func (c *Client) failed(endpoint string, answer *http.Response) error {
	var f failure
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxLine))
	if err != nil || json.Unmarshal(text, &f) != nil || f.Error == "" {
		f.Error = fmt.Sprintf("it answers %s: %s", answer.Status, clean(string(text)))
	}
	switch {
	case answer.StatusCode == http.StatusForbidden:
		return fmt.Errorf("the control process at %s: %w: %s", endpoint, ErrRefused, clean(f.Error))
	case f.Kind == "" && answer.StatusCode >= http.StatusInternalServerError:
		f.Kind = croft.Unavailable
	}
	if f.Kind == "" {
		return fmt.Errorf("the control process at %s: %s", endpoint, clean(f.Error))
	}
	return croft.Errorf(f.Kind, "the control process at %s: %s", endpoint, clean(f.Error))
}

// ask calls a method, at the other endpoints too if one is unreachable.
func ask[A any](ctx context.Context, c *Client, name string, q any) (answer A, err error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return answer, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	for range c.gates.Len() {
		var r *http.Response
		if r, err = c.post(ctx, c.current.Load(), name, bytes.NewReader(encode(q))); err == nil {
			defer r.Body.Close()
			if err = json.NewDecoder(r.Body).Decode(&answer); err != nil {
				err = croft.Errorf(croft.Unavailable, "the control process's answer broke off: %w", err)
			}
			return answer, err
		}
		if dial, ok := errors.AsType[*net.OpError](err); !ok || dial.Op != "dial" {
			break
		}
	}
	return answer, err
}

func do(ctx context.Context, c *Client, name string, q any) error {
	_, err := ask[none](ctx, c, name, q)
	return err
}

// Order implements compute.Orders.
func (c *Client) Order(ctx context.Context, of croft.HostID, id croft.InstanceID) (croft.Order, error) {
	o, err := ask[orderMessage](ctx, c, "Order", croft.OrderID{Host: of, Instance: id})
	if of == c.Host && errors.Is(err, croft.NotFound) {
		c.known.remove(id)
	}
	return o.noun(), err
}

// Remains implements compute.Orders. A control process of the previous version answers with an order of that host that
// shows only that it exists.
func (c *Client) Remains(ctx context.Context, of croft.HostID, id croft.InstanceID) (bool, error) {
	remains, err := ask[bool](ctx, c, "Remains", croft.OrderID{Host: of, Instance: id})
	if !errors.Is(err, ErrRefused) {
		return remains, err
	}
	if _, err = c.Order(ctx, of, id); errors.Is(err, croft.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// Observed implements compute.Orders.
func (c *Client) Observed(ctx context.Context, of croft.HostID, id croft.InstanceID) (croft.Observation, error) {
	return ask[croft.Observation](ctx, c, "Observed", croft.OrderID{Host: of, Instance: id})
}

// Observe implements compute.Orders.
func (c *Client) Observe(ctx context.Context, o croft.Observation) error {
	return do(ctx, c, "Observe", o)
}

// Forget implements compute.Orders.
func (c *Client) Forget(ctx context.Context, o croft.Order) error {
	return do(ctx, c, "Forget", sendOrder(named(o)))
}

// Origin implements compute.Orders.
func (c *Client) Origin(ctx context.Context, o croft.Order) (croft.Host, error) {
	return ask[croft.Host](ctx, c, "Origin", sendOrder(named(o)))
}

// Arrived implements compute.Orders.
func (c *Client) Arrived(ctx context.Context, o croft.Order, failure string) error {
	return do(ctx, c, "Arrived", arrival{sendOrder(named(o)), failure})
}

// HandOver implements compute.Orders.
func (c *Client) HandOver(ctx context.Context, o croft.Order) error {
	return do(ctx, c, "HandOver", sendOrder(named(o)))
}

// named returns the part of an order by which the server finds the stored one, which it uses.
func named(o croft.Order) croft.Order {
	return croft.Order{Partition: o.Partition, Host: o.Host, Instance: o.Instance, Revision: o.Revision,
		CreateRevision: o.CreateRevision}
}

// PutHost implements compute.Registry.
func (c *Client) PutHost(ctx context.Context, h croft.Host) error {
	return do(ctx, c, "PutHost", host{h, h.Token})
}

// Hosts implements compute.Registry, for the own host only.
func (c *Client) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return ask[map[croft.HostID]croft.Host](ctx, c, "Hosts", ids)
}

// Instance implements compute.Records. For an instance on another host it returns only ownership.
func (c *Client) Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error) {
	inst, err := ask[instance](ctx, c, "Instance", id)
	return inst.noun(), err
}

// HostEvidence implements compute.Records.
func (c *Client) HostEvidence(ctx context.Context, of croft.HostID, more ...croft.InstanceID) (audit.Evidence, error) {
	e, err := ask[hostEvidence](ctx, c, hostEvidenceCall, evidenceQuery{of, more})
	return e.noun(of), err
}

// Drop implements compute.Records.
func (c *Client) Drop(ctx context.Context, d audit.Difference) error {
	return do(ctx, c, "Drop", d)
}

// EnsureProvider implements compute.Inventory.
func (c *Client) EnsureProvider(ctx context.Context, p croft.Provider) error {
	return do(ctx, c, "EnsureProvider", p)
}

// Claims implements compute.Inventory.
func (c *Client) Claims(ctx context.Context, of croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	return ask[map[croft.InstanceID]croft.Resources](ctx, c, "Claims", of)
}

// Release implements compute.Inventory. The server too decides whether the claim may be released, and on which hosts,
// after it has read it.
func (c *Client) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	if _, err := may(ctx); err != nil {
		return err
	}
	inst, err := c.Instance(ctx, id)
	switch {
	case err != nil && !errors.Is(err, croft.NotFound):
		return err
	case err != nil || inst.Host == c.Host:
		return do(ctx, c, "Release", id)
	}
	err = do(ctx, c, "Vacate", id)
	if errors.Is(err, ErrRefused) {
		return nil // by a control process of the previous version, with which moves leave no claim here
	}
	return err
}

// Gates returns the addresses of all gates of the cloud, HOST:PORT. ErrRefused: the version of this gate does
// not support the call.
func (c *Client) Gates(ctx context.Context) ([]string, error) {
	return ask[[]string](ctx, c, "Gates", none{})
}

// Usable returns why nothing can be ordered now; nil if orders are possible.
func (c *Client) Usable(ctx context.Context) error { return do(ctx, c, "Usable", none{}) }
