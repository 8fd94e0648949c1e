// Command clients takes an instance through its life with a client that oapi-codegen made from croft's document. It is
// called with the URL of a cloud and a token of a project.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, token string) error {
	c, err := NewClientWithResponses(url, WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		return err
	}
	image := "https://images.example/tiny.qcow2"
	name, life := "generated", "running"
	query, wrong := "VCPU:1,MEMORY_MB:256,DISK_GB:1", "VCPUS:1"
	made, err := c.CreateInstanceWithResponse(ctx, &CreateInstanceParams{Wait: (*CreateInstanceParamsWait)(&life)},
		CreateInstanceJSONRequestBody{Name: &name, Query: &query, Image: &image})
	if err != nil {
		return err
	}
	if made.JSON200 == nil || made.JSON200.Name != name || made.JSON200.State != "running" {
		return fmt.Errorf("create: %s: %s", made.Status(), made.Body)
	}
	id := made.JSON200.Id
	refused, err := c.CreateInstanceWithResponse(ctx, nil, CreateInstanceJSONRequestBody{Query: &wrong, Image: &image})
	if err != nil {
		return err
	}
	if refused.ApplicationproblemJSON400 == nil || refused.ApplicationproblemJSON400.Code != "bad_request" {
		return fmt.Errorf("a request with a wrong query: %s: %s", refused.Status(), refused.Body)
	}
	listed, err := c.ListInstancesWithResponse(ctx, nil)
	if err != nil {
		return err
	}
	if listed.JSON200 == nil || len(listed.JSON200.Instances) != 1 || listed.JSON200.Instances[0].Id != id {
		return fmt.Errorf("list: %s: %s", listed.Status(), listed.Body)
	}
	stopped := StopInstanceParamsWait("stopped")
	stop, err := c.StopInstanceWithResponse(ctx, name, &StopInstanceParams{Wait: &stopped})
	if err != nil {
		return err
	}
	if stop.JSON200 == nil || stop.JSON200.State != "stopped" {
		return fmt.Errorf("stop: %s: %s", stop.Status(), stop.Body)
	}
	gone := DestroyInstanceParamsWait("gone")
	if _, err = c.DestroyInstanceWithResponse(ctx, name, &DestroyInstanceParams{Wait: &gone}); err != nil {
		return err
	}
	after, err := c.GetInstanceWithResponse(ctx, name, nil)
	if err != nil {
		return err
	}
	if after.ApplicationproblemJSON404 == nil || after.ApplicationproblemJSON404.Code != "not_found" {
		return errors.New("the instance is there after it was destroyed: " + after.Status())
	}
	return nil
}
