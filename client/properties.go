package client

import (
	"context"
	"strings"

	"croft"
	"croft/control/api"
	"croft/tenant/objects"
)

// ReadProperties reads pairs KEY=VALUE as properties of an object of this kind, whose definition says which values are
// numbers or booleans. Invalid: a pair has no value, a key is given twice, or is none.
func (c *Client) ReadProperties(ctx context.Context, kind objects.Kind, pairs []string) (map[string]objects.Value,
	error) {
	under, err := c.GetDefinition(ctx, api.DefinitionChosen{DefinitionNamed: api.DefinitionNamed{Kind: kind},
		Effective: true})
	if err != nil {
		return nil, err
	}
	set := map[string]objects.Value{}
	for _, pair := range pairs {
		key, text, said := strings.Cut(pair, "=")
		if !said {
			return nil, croft.Errorf(croft.Invalid, "%q is not a property with a value: write %s=VALUE", pair, key)
		}
		if _, twice := set[key]; twice {
			return nil, croft.Errorf(croft.Invalid, "the property %s is set twice: give one value", key)
		}
		if err := objects.CheckNewKey(key); err != nil {
			return nil, err
		}
		set[key] = under.ReadText(key, text)
	}
	return set, nil
}
