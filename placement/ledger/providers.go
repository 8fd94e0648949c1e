package ledger

// FindProvider returns a provider, or NotFound.
func (s *State) FindProvider(uuid string) (*Provider, error) {
	if p := s.providers[uuid]; p != nil {
		return p, nil
	}
	return nil, noProvider(uuid)
}

func noProvider(uuid string) *Error { return notFound("No resource provider with uuid %s found", uuid) }

// CreateProvider creates a provider below a parent, or as a root if parent is empty, and returns it with the UUID of
// its root.
func (t *Tx) CreateProvider(uuid, name, parent string) (p ProviderData, root string, err error) {
	refuse := func(reason string) error {
		const text = `Unable to create resource provider "%s", %s: Object action create failed because: %s`
		return invalid(text, name, uuid, reason)
	}
	if name == "" {
		return p, "", refuse("name is required")
	}
	root = uuid
	if parent != "" {
		if parent == uuid {
			return p, "",
				refuse("parent provider UUID cannot be same as UUID. Please set parent provider UUID to None " +
					"if there is no parent.")
		}
		up := t.providers.whole(parent)
		if up == nil {
			return p, "", refuse("parent provider UUID does not exist.")
		}
		up.write = true // prevents its concurrent deletion
		root = t.providers.root(parent)
	}
	v := t.providers.view(uuid)
	t.basis.unchanged(KindProvider, uuid, v.modified)
	switch owner := t.providers.owner(name); {
	case v.exists:
		return p, "", conflict(CodeDuplicateName, "Conflicting resource provider uuid: %s already exists.", uuid)
	case owner != "":
		return p, "", conflict(CodeDuplicateName, "Conflicting resource provider name: %s already exists.", name)
	}
	v.ProviderData = ProviderData{UUID: uuid, Parent: parent, Created: t.basis.now,
		modified: v.modified, generationRevision: v.generationRevision, order: creationOrder{index: t.basis.number()}}
	t.providers.rename(v, name)
	v.exists, v.write, v.writeGeneration = true, true, true
	return v.ProviderData, root, nil
}

// ProviderChange changes a provider's name, and optionally its parent.
type ProviderChange struct {
	Name     string
	Reparent bool   // whether to change the parent
	Parent   string // empty: the provider becomes a root
	Freely   bool   // any provider may be moved; else only a root
}

// UpdateProvider changes a provider and returns it with the UUID of its root.
func (t *Tx) UpdateProvider(uuid string, change ProviderChange) (p ProviderData, root string, err error) {
	v := t.providers.whole(uuid)
	if v == nil {
		return p, "", noProvider(uuid)
	}
	if change.Reparent {
		if err := t.providers.reparent(v, change.Parent, change.Freely); err != nil {
			return p, "", err
		}
	}
	if change.Name != v.Name {
		if t.providers.owner(change.Name) != "" {
			return p, "", conflict(CodeDuplicateName, "Conflicting resource provider %s already exists.", change.Name)
		}
		t.providers.rename(v, change.Name)
	}
	v.Updated, v.write = t.basis.now, true
	return v.ProviderData, t.providers.root(uuid), nil
}

// reparent moves a provider with its subtree. An empty parent makes it a root. Unless freely is set, only a root may be
// moved.
func (t *providerTable) reparent(v *providerView, parent string, freely bool) error {
	refuse := func(action, reason string) error {
		const text = "Unable to save resource provider %s: Object action %s failed because: %s"
		return invalid(text, v.UUID, action, reason)
	}
	if parent == "" {
		if v.Parent != "" && !freely {
			return refuse("update", "un-parenting a provider is not currently allowed.")
		}
		v.Parent = ""
		return nil
	}
	up := t.whole(parent)
	switch {
	case up == nil:
		return refuse("create", "parent provider UUID does not exist.")
	case v.Parent != "" && v.Parent != parent && !freely:
		return refuse("update", "re-parenting a provider is not currently allowed.")
	}
	// A concurrent change of the tree above the new parent could form a loop with this change. So all ancestors are
	// compared, and a move writes the moved provider.
	for id := parent; id != ""; {
		if id == v.UUID {
			return refuse("update", "creating loop in the provider tree is not allowed.")
		}
		above := t.whole(id)
		if above == nil {
			break
		}
		id = above.Parent
	}
	up.write = true // prevents its concurrent deletion
	v.Parent = parent
	return nil
}

// DeleteProvider deletes a provider that has no children and no allocations.
func (t *Tx) DeleteProvider(uuid string) error {
	v := t.providers.whole(uuid)
	switch {
	case v == nil:
		return notFound("No resource provider with uuid %s found for delete", uuid)
	case t.providers.hasChildren(uuid):
		return conflict(CodeProviderIsParent,
			"Unable to delete parent resource provider %s: It has child resource providers.", uuid)
	case len(v.Usage) > 0:
		return conflict(CodeProviderInUse,
			"Unable to delete resource provider %s: Resource provider has allocations.", uuid)
	}
	t.providers.remove(v)
	return nil
}

// changedMeanwhile refuses a change based on an old generation.
func changedMeanwhile() *Error {
	return conflict(CodeConcurrentUpdate,
		"Resource provider's generation already changed. Please update the generation and try again.")
}

// SetAggregates replaces a provider's aggregates. A generation, if given, must be the provider's, and is incremented.
func (t *Tx) SetAggregates(uuid string, generation *int64, aggregates []string) (p ProviderData, err error) {
	v := t.providers.whole(uuid)
	if v == nil {
		return p, noProvider(uuid)
	}
	if generation != nil {
		if *generation != v.Generation {
			return p, changedMeanwhile()
		}
		v.Updated = t.basis.now
		v.bump()
	}
	v.Aggregates, v.write = aggregates, true
	return v.ProviderData, nil
}
