package placementclient

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"croft"
	"croft/internal/jsonlist"
)

// croft's own Placement has two requests that the API lacks. Other Placements, and older versions of croft's, do not
// have their paths; with those the client uses the API, and tries the paths again every foreignTime.
const (
	wholePath   = "/croft/providers"
	foreignTime = time.Minute
)

type wholeBody struct {
	Name        string                                  `json:"name"`
	Inventories map[croft.ResourceClass]croft.Inventory `json:"inventories"`
	Traits      []croft.Trait                           `json:"traits"`
	Aggregates  []string                                `json:"aggregates"`
}

// foreign reports whether the Placement is known to lack croft's own requests.
func (c *Client) foreign() bool {
	since := c.foreignSince.Load()
	return since != nil && time.Since(*since) < foreignTime
}

// isForeign reports whether an answer to one of croft's own requests means that the server lacks it.
func (c *Client) isForeign(err error) bool {
	if !is(err, http.StatusNotFound, "") && !is(err, http.StatusMethodNotAllowed, "") {
		return false
	}
	now := time.Now()
	c.foreignSince.Store(&now)
	return true
}

// ensureAtOnce does EnsureProvider in one request, if the server supports it.
func (c *Client) ensureAtOnce(ctx context.Context, p croft.Provider) (done bool, err error) {
	if c.foreign() {
		return false, nil
	}
	path := wholePath + "/" + string(p.ID)
	body := wholeBody{p.Name, inventoriesOf(p), sorted(p.Traits), sorted(p.Aggregates)}
	err = c.conn.again(ctx, func() error { return c.conn.call(ctx, http.MethodPut, path, body, nil) })
	if c.isForeign(err) {
		return false, nil
	}
	if is(err, http.StatusConflict, duplicateName) {
		return true, nameTaken(p.Name, err)
	}
	return true, err
}

// duplicateName is the code of a conflict about a provider's name.
const duplicateName = "placement.duplicate_name"

// providersAtOnce does Providers in one request, if the server supports it.
func (c *Client) providersAtOnce(ctx context.Context) (all []croft.Provider, done bool, err error) {
	if c.foreign() {
		return nil, false, nil
	}
	var list wholeList
	if err := c.conn.call(ctx, http.MethodGet, wholePath, nil, &list); err != nil {
		return nil, !c.isForeign(err), err
	}
	return list, true, nil
}

// wholeList is all providers. With thousands of hosts it is some megabytes of JSON, so they are decoded one by one.
type wholeList []croft.Provider

// read implements reader.
func (l *wholeList) read(body io.Reader) error {
	*l = nil
	d := json.NewDecoder(body)
	_, err := jsonlist.Read(d, "providers", func() error {
		var p struct {
			wholeBody
			ID     croft.HostID    `json:"uuid"`
			Root   croft.HostID    `json:"root_provider_uuid"`
			Usages croft.Resources `json:"usages"`
		}
		err := d.Decode(&p)
		*l = append(*l, croft.Provider{ID: p.ID, Root: p.Root, Name: p.Name, Inventories: p.Inventories,
			Used: p.Usages, Traits: p.Traits, Aggregates: p.Aggregates})
		return err
	})
	return err
}
