package etcdtest

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// Put writes a key of a partition, bypassing the store. The key is the part after the partition's prefix.
func Put(ctx context.Context, endpoint string, p croft.PartitionID, key, value string) error {
	return raw(ctx, endpoint, clientv3.OpPut("/croft/"+string(p)+"/"+key, value))
}

// PutHome writes the home key: the partition and its schema version.
func PutHome(ctx context.Context, endpoint string, p croft.PartitionID, schema string) error {
	return raw(ctx, endpoint, clientv3.OpPut("/croft/home", fmt.Sprintf(`{"partition":%q,"schema":%q}`, p, schema)))
}

// Delete removes a key of a partition, bypassing the store.
func Delete(ctx context.Context, endpoint string, p croft.PartitionID, key string) error {
	return raw(ctx, endpoint, clientv3.OpDelete("/croft/"+string(p)+"/"+key))
}

func raw(ctx context.Context, endpoint string, op clientv3.Op) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Context: ctx})
	if err != nil {
		return fmt.Errorf("reach etcd: %w", err)
	}
	defer client.Close()
	if _, err := client.Do(ctx, op); err != nil {
		return fmt.Errorf("change etcd: %w", err)
	}
	return nil
}

// Expire ends the lease of a key of a partition, as if it were not renewed. It has no effect if the key does not exist
// or has no lease.
func Expire(ctx context.Context, endpoint string, p croft.PartitionID, key string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Context: ctx})
	if err != nil {
		return fmt.Errorf("reach etcd: %w", err)
	}
	defer client.Close()
	got, err := client.Get(ctx, "/croft/"+string(p)+"/"+key)
	if err != nil || len(got.Kvs) == 0 || got.Kvs[0].Lease == 0 {
		return err
	}
	if _, err := client.Revoke(ctx, clientv3.LeaseID(got.Kvs[0].Lease)); err != nil {
		return fmt.Errorf("end a lease: %w", err)
	}
	return nil
}

// Keys lists the keys of a partition, without its prefix.
func Keys(ctx context.Context, endpoint string, p croft.PartitionID) (keys []string, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Context: ctx})
	if err != nil {
		return nil, fmt.Errorf("reach etcd: %w", err)
	}
	defer client.Close()
	prefix := "/croft/" + string(p) + "/"
	all, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("list the keys of etcd: %w", err)
	}
	for _, kv := range all.Kvs {
		keys = append(keys, string(kv.Key[len(prefix):]))
	}
	return keys, nil
}
