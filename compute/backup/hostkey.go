package backup

import (
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"croft"
	"croft/internal/durable"
)

// HostKey is the private key of a host. Servers of the API seal the access to a store for the host with the public key,
// which is in the host's record, so that etcd never has it in plain text and no other host can open it.
type HostKey struct{ key hpke.PrivateKey }

func suite() (hpke.KEM, hpke.KDF, hpke.AEAD) {
	return hpke.DHKEM(ecdh.X25519()), hpke.HKDFSHA256(), hpke.AES256GCM()
}

// OpenHostKey reads the key of a host from a file, which it makes if it is missing.
func OpenHostKey(file string) (HostKey, error) {
	kem, _, _ := suite()
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		made, err := kem.GenerateKey()
		if err != nil {
			return HostKey{}, fmt.Errorf("make the key for backups: %w", err)
		}
		raw, err = made.Bytes()
		if err == nil {
			err = durable.Write(file, raw, 0o600)
		}
		if err != nil {
			return HostKey{}, fmt.Errorf("make the key for backups: %w", err)
		}
		return HostKey{made}, nil
	}
	if err != nil {
		return HostKey{}, fmt.Errorf("read the key for backups: %w", err)
	}
	key, err := kem.NewPrivateKey(raw)
	if err != nil {
		return HostKey{}, croft.Errorf(croft.Invalid, "the key for backups in %s is damaged: remove the file, and "+
			"restart the agent, which makes another one", file)
	}
	return HostKey{key}, nil
}

// Public returns the public key, for the record of the host; empty: there is no key.
func (k HostKey) Public() string {
	if k.key == nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(k.key.PublicKey().Bytes())
}

// Open returns the access in a job for the host. Invalid: it was sealed for another key or another job.
func (k HostKey) Open(j Job) (a Access, err error) {
	_, kdf, aead := suite()
	if k.key == nil {
		return a, croft.Errorf(croft.Invalid, "this host has no key to open the access to the store with")
	}
	plain, err := hpke.Open(k.key, kdf, aead, []byte(j.About()), j.Secret)
	if err == nil {
		err = json.Unmarshal(plain, &a)
	}
	if err != nil {
		return a, croft.Errorf(croft.Invalid, "the access to the store was sealed for another key of this host: try "+
			"again")
	}
	return a, nil
}

// SealFor puts the access to a store into a job, sealed for its host. Unavailable: the host has no key.
func (a Access) SealFor(j *Job, host croft.Host) error {
	kem, kdf, aead := suite()
	raw, err := base64.StdEncoding.DecodeString(host.BackupKey)
	if err != nil || len(raw) == 0 {
		return croft.Errorf(croft.Unavailable, "host %s cannot make backups: install restic and libnbd-bin on it, "+
			"and restart its agent", host.Name)
	}
	public, err := kem.NewPublicKey(raw)
	if err != nil {
		return croft.Errorf(croft.Invalid, "the key for backups of host %s is damaged", host.Name)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	j.Secret, err = hpke.Seal(public, kdf, aead, []byte(j.About()), text)
	return err
}
