package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"croft"
	"croft/control/api"
	"croft/etcdstore"
	"croft/tenant/access"
)

// The callers of the API: enough of them in a few projects that each stays below its rate limit.
const (
	tenants  = 512
	projects = 16
)

// admitTenants creates a token for each caller.
func (f *fleet) admitTenants(ctx context.Context) (err error) {
	store, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{f.etcd}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for n := range tenants {
		t, secret, err := access.NewToken(access.Token{User: fmt.Sprintf("tenant-%d", n),
			Project: croft.Project(fmt.Sprintf("project-%d", n%projects)), Roles: []access.Role{access.Member},
			Created: time.Now(), Expires: time.Now().Add(24 * time.Hour)})
		if err != nil {
			return err
		}
		if err := store.AccessTokens.Create(ctx, t); err != nil {
			return err
		}
		f.tokens = append(f.tokens, secret.Text())
	}
	if err := awaitURL(ctx, f.api+"/readyz"); err != nil {
		return fmt.Errorf("start the API: %w", err)
	}
	return f.begin(ctx)
}

// begin requests an instance of each project, because the first request of a project counts all records, which takes
// long when there are many.
func (f *fleet) begin(ctx context.Context) error {
	client := f.client(1)
	defer client.close()
	for range projects {
		if err := client.ask(ctx, croft.NewInstanceID()); err != nil {
			return fmt.Errorf("ask for the first instances: %w", err)
		}
	}
	return nil
}

// apiClient requests instances as tenants do.
type apiClient struct {
	fleet *fleet
	http  *http.Client
	next  atomic.Int64
}

// client returns a client that keeps one connection per concurrent request.
func (f *fleet) client(atOnce int) *apiClient {
	return &apiClient{fleet: f, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce},
		Timeout: time.Minute}}
}

func (c *apiClient) close() { c.http.CloseIdleConnections() }

// ask requests an instance, and returns once it is ordered.
func (c *apiClient) ask(ctx context.Context, id croft.InstanceID) error {
	body, err := json.Marshal(api.InstanceRequest{ID: id, Query: wanted, Image: "https://images.example/simulated"})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.fleet.api+"/v1/instances", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.fleet.tokens[c.next.Add(1)%int64(len(c.fleet.tokens))])
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("the API answers %s: %s", answer.Status, text)
	}
	return err
}
