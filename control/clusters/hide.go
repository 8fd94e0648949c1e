package clusters

import (
	"context"
	"errors"
	"slices"
	"strings"

	"croft"
	"croft/cluster"
	"croft/control/api"
)

// hidden are words about hosts, which are for operators alone. The zero value hides nothing.
type hidden []string

// hider returns what is hidden from the caller: the names, UUIDs and addresses of this cloud's hosts, which errors of
// the site local may have.
func hider(ctx context.Context, c Call) (hidden, error) {
	if c.Caller.Operator() {
		return nil, nil
	}
	hosts, err := c.Cloud.Hosts.Records(ctx)
	if err != nil {
		return nil, err
	}
	var words hidden
	for _, h := range hosts {
		for _, word := range append([]string{string(h.ID), h.Name, h.API, h.Place}, h.Addresses...) {
			if word != "" {
				words = append(words, word)
			}
		}
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) }) // so that none is left as a part
	return words, nil
}

// text returns a text without the words.
func (h hidden) text(text string) string {
	for _, word := range h {
		text = strings.ReplaceAll(text, word, "its host")
	}
	return text
}

func (h hidden) dropped(all []cluster.Dropped) []cluster.Dropped {
	shown := []cluster.Dropped{}
	for _, d := range all {
		d.Reason = h.text(d.Reason)
		shown = append(shown, d)
	}
	return shown
}

// shown returns a cluster as the caller may see it.
func shown(ctx context.Context, c Call, have cluster.Cluster) (api.Cluster, error) {
	document := api.ClusterOf(have)
	if !wordy(have) {
		return document, nil
	}
	hide, err := hider(ctx, c)
	if err != nil || hide == nil {
		return document, err
	}
	document.Step, document.Remote.Reason = hide.text(document.Step), hide.text(document.Remote.Reason)
	if document.Error != nil {
		failure := *document.Error
		failure.Message = hide.text(failure.Message)
		document.Error = &failure
	}
	document.Attempts, document.Why = slices.Clone(document.Attempts), hide.dropped(document.Why)
	for i := range document.Attempts {
		document.Attempts[i].Error = hide.text(document.Attempts[i].Error)
	}
	for i := range document.Members { // a copy already
		document.Members[i].Error = hide.text(document.Members[i].Error)
		document.Members[i].Step = hide.text(document.Members[i].Step)
	}
	return document, nil
}

// wordy reports whether a cluster has any text that others wrote.
func wordy(have cluster.Cluster) bool {
	return have.Step != "" || have.Error != nil || have.Remote.Reason != "" || len(have.Attempts)+len(have.Why) > 0 ||
		slices.ContainsFunc(have.Members, func(m cluster.Member) bool { return m.Error+m.Step != "" })
}

// told is the answer when a site, or what runs there, does not answer: that is the caller's to know, unlike what is
// wrong inside of the cloud.
func told(err error) error {
	if away, ok := errors.AsType[*cluster.AwayError](err); ok {
		return api.NewProblem(api.BackendDown, away.Error())
	}
	if errors.Is(err, croft.Denied) { // by the site: the caller may ask
		return api.NewProblem(api.BadRequest, err.Error())
	}
	return err
}
