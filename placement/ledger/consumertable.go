package ledger

// consumerTable holds the consumers as a transaction sees them.
type consumerTable struct {
	base  *State
	views layered[*consumerView]
	basis *readSet
}

// consumerView is the transaction's copy of a consumer.
type consumerView struct {
	ConsumerData
	exists bool
	write  bool
}

// view returns a consumer to read and change, even if it does not exist.
func (t *consumerTable) view(uuid string) *consumerView {
	if v := t.views.own[uuid]; v != nil {
		return v
	}
	v := consumerView{ConsumerData: ConsumerData{UUID: uuid}}
	if below, found := t.views.get(uuid); found {
		v = *below
	} else if c := t.base.consumers[uuid]; c != nil {
		v = consumerView{ConsumerData: c.ConsumerData, exists: true}
	}
	t.basis.unchanged(KindConsumer, uuid, v.modified)
	t.views.put(uuid, &v)
	return &v
}

// version returns the revision at which the consumer was last written; 0: it does not exist, or the transaction itself
// has changed it.
func (t *consumerTable) version(uuid string) int64 {
	v := t.view(uuid)
	if !v.exists || v.write {
		return 0
	}
	t.basis.early = t.basis.early || v.modified == promisedRevision
	return v.modified
}

// holders returns the UUIDs of consumers: it includes all that have allocations of a provider, and may include others.
func (t *consumerTable) holders(provider string) map[string]bool {
	out := map[string]bool{}
	if p := t.base.providers[provider]; p != nil {
		for c := range p.consumers {
			out[c.UUID] = true
		}
	}
	for uuid := range t.views.all() {
		out[uuid] = true
	}
	return out
}

// writes returns the number of entries to write.
func (t *consumerTable) writes() int {
	n := 0
	for _, v := range t.views.own {
		n += count(v.write)
	}
	return n
}

// addTo adds the writes to a transaction of the store.
func (t *consumerTable) addTo(out *Txn, names Vocabulary) {
	for uuid, v := range t.views.own {
		switch {
		case !v.write:
		case v.exists:
			out.put(KindConsumer, uuid, encodeConsumer(&v.ConsumerData, names))
		case v.modified != 0:
			out.delete(KindConsumer, uuid)
		}
	}
}
