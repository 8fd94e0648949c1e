package placementclient_test

import (
	"context"
	"fmt"

	"croft"
	"croft/placementclient"
)

// Claim the first candidate for a request, and release it again. Another client may take the resources between the
// search and the claim; then Claim returns an error of the kind Conflict, and the next candidate is tried.
func ExampleClient() {
	ctx := context.Background()
	client, err := placementclient.New(placementclient.Config{Endpoint: "http://127.0.0.1:8778"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	home, err := client.Home(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := client.Candidates(ctx, "resources=VCPU:1,MEMORY_MB:256", 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	id := croft.NewInstanceID()
	for _, candidate := range found {
		err := client.Claim(ctx, id, croft.Owner{Partition: home, Project: croft.DefaultProject}, candidate)
		if croft.KindOf(err) == croft.Conflict {
			continue
		}
		fmt.Println(candidate.Allocations, err)
		break
	}
	if err := client.Release(ctx, id, nil); err != nil {
		fmt.Println(err)
	}
}
