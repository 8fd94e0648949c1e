package direct

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"croft"
	"croft/compute"
)

// images implements cloud.Images.
type images struct{ agents agents }

// Pull implements cloud.Images.
func (i images) Pull(ctx context.Context, host croft.Host, name, reference string,
	progress func(croft.Progress)) (*compute.Pulled, error) {
	attempt := fmt.Sprintf("pull %s to host %s", name, host.Name)
	if !host.Alive || host.API == "" {
		return nil, croft.Errorf(croft.Unavailable, "%s: it is silent; is the agent running there?", attempt)
	}
	body, err := json.Marshal(compute.PullRequest{Image: reference})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", attempt, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(host.API, "/")+"/v1/images",
		bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", attempt, err)
	}
	request.Header.Set("Authorization", "Bearer "+host.Token)
	request.Header.Set("Content-Type", "application/json")
	client, err := i.agents.client(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", attempt, err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, unanswered(ctx, attempt, host, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, refused(attempt, answer)
	}
	return followPull(ctx, attempt, host, json.NewDecoder(answer.Body), progress)
}

// followPull reads the lines of a response until the image is there or the pull fails.
func followPull(ctx context.Context, attempt string, host croft.Host, lines *json.Decoder,
	progress func(croft.Progress)) (*compute.Pulled, error) {
	for {
		var line compute.Pull
		if err := lines.Decode(&line); err != nil {
			return nil, unanswered(ctx, attempt, host, err)
		}
		switch {
		case line.Error != nil && line.Error.Kind != "":
			return nil, croft.Errorf(line.Error.Kind, "%s: %s", attempt, said([]byte(line.Error.Message)))
		case line.Error != nil:
			return nil, fmt.Errorf("%s: %s", attempt, said([]byte(line.Error.Message)))
		case line.Image != nil:
			return line.Image, nil
		case line.Progress != nil:
			progress(*line.Progress)
		}
	}
}

// unanswered returns the error for a host that did not answer, or not completely.
func unanswered(ctx context.Context, attempt string, host croft.Host, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", attempt, ctx.Err())
	}
	return croft.Errorf(croft.Unavailable, "%s: it does not answer at %s (%w); is the agent running there?", attempt,
		host.API, cmp.Or(errors.Unwrap(err), err))
}
