// Package pemfile reads the files of certificates and keys that settings name.
package pemfile

import (
	"crypto/tls"
	"errors"
	"os"
	"time"

	"croft"
)

// Read reads a file that a setting names.
func Read(setting, path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, croft.Errorf(croft.Invalid, "%s: there is no file %s", setting, path)
	}
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "%s: %w", setting, err)
	}
	return text, nil
}

// CheckPair returns an error about a wrong pair of certificate and key, with the names of their settings.
func CheckPair(certSetting, cert, keySetting, key string) error {
	certText, err := Read(certSetting, cert)
	if err != nil {
		return err
	}
	keyText, err := Read(keySetting, key)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certText, keyText)
	if err != nil {
		return croft.Errorf(croft.Invalid,
			"%s %s and %s %s do not belong together (%w): name a certificate and the key that it was made for", certSetting, cert,
			keySetting, key, err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) {
		return croft.Errorf(croft.Invalid, "%s: the certificate in %s ran out on %s: renew it", certSetting, cert,
			pair.Leaf.NotAfter.Format(time.DateOnly))
	} else if now.Before(pair.Leaf.NotBefore) {
		return croft.Errorf(croft.Invalid,
			"%s: the certificate in %s counts from %s on: set this machine's clock, or wait", certSetting, cert,
			pair.Leaf.NotBefore.Format(time.DateTime))
	}
	return nil
}
