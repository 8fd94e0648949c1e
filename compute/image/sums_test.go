package image

import (
	"strings"
	"testing"
)

func TestFindSum(t *testing.T) {
	a, b, long, md5 := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 128),
		strings.Repeat("d", 32)
	for _, c := range []struct{ name, text, want string }{
		{"as sha256sum writes it", a + "  disk.img\n" + b + "  other.img\n", a},
		{"in binary mode", a + " *disk.img", a},
		{"with a path", a + "  ./images/disk.img", a},
		{"a longer name that ends the same is another file", a + "  old-disk.img\n" + b + "  disk.img\n", b},
		{"as BSD and Fedora write it", "# disk.img: 5 bytes\nSHA256 (disk.img) = " + a + "\n", a},
		{"within a signature", "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nSHA256 (disk.img) = " + a +
			"\n-----BEGIN PGP SIGNATURE-----\n\niQIz\n-----END PGP SIGNATURE-----\n", a},
		{"the longest of several", a + "  disk.img\n" + long + "  disk.img\n" + md5 + "  disk.img\n", long},
		{"lines of other systems", a + "  disk.img\r\n", a},
		{"a file with only a checksum", a + "\n", a},
		{"capital letters", strings.ToUpper(a) + "  disk.img\n", a},
		{"MD5 does not count", md5 + "  disk.img\n", ""},
		{"a bare checksum among others belongs to no file", a + "\n" + b + "  other.img\n", ""},
		{"a checksum of another file alone", b + "  other.img\n", ""},
		{"nothing", "", ""},
		{"a web page", "<html>" + a + "</html>", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := findSum([]byte(c.text), "https://images.test/a/disk.img", "https://images.test/a/LIST")
			if got.hex != c.want || ok != (c.want != "") {
				t.Errorf("got %+v, %v; want %q", got, ok, c.want)
			}
		})
	}
}

// The formats of publishers' lists, shortened; the image is at https://h.test/a/disk.raw.
func TestListsAreReadAsTheirPublishersWriteThem(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	long, blake := strings.Repeat("c", 128), strings.Repeat("d", 128)
	for _, c := range []struct{ name, list, text, want string }{
		{"Debian", "SHA512SUMS", long + "  disk.raw\n" + blake + "  other.raw\n", long},
		{"Ubuntu", "SHA256SUMS", a + " *disk.raw\n" + b + " *other.raw\n", a},
		{"Fedora", "Fedora-CHECKSUM", "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n# disk.raw: 5 bytes\n" +
			"SHA256 (disk.raw) = " + a + "\n-----BEGIN PGP SIGNATURE-----\n\niQIz\n-----END PGP SIGNATURE-----\n", a},
		{"Gentoo", "disk.raw.DIGESTS", "# BLAKE2B HASH\n" + blake + "  disk.raw\n# SHA512 HASH\n" + long +
			"  disk.raw\n", long},
		{"Gentoo, the other way round", "disk.raw.DIGESTS", "# SHA512 HASH\n" + long + "  disk.raw\n# BLAKE2B HASH\n" +
			blake + "  disk.raw\n", long},
		{"Gentoo without SHA512", "disk.raw.DIGESTS", "# BLAKE2B HASH\n" + blake + "  disk.raw\n", ""},
		{"b2sum", "B2SUMS", blake + "  disk.raw\n", ""},
		{"b2sum --tag", "SUMS", "BLAKE2b (disk.raw) = " + blake + "\nSHA512 (disk.raw) = " + long + "\n", long},
		{"SHA-3", "SHA3-256SUMS", a + "  disk.raw\n", ""},
		{"SHA-512/256", "SUMS", "SHA512/256 (disk.raw) = " + a + "\n", ""},
		{"openSUSE: the build behind the alias", "disk.raw.sha256", a + "  disk-15.6.0-Build1.2.raw\n", a},
		{"the build of another file", "other.raw.sha256", a + "  other-15.6.0-Build1.2.raw\n", ""},
		{"openssl dgst", "disk.raw.sha256", "SHA256(disk.raw)= " + a + "\n", a},
		{"openssl 3 dgst", "SUMS", "SHA2-512(disk.raw)= " + long + "\n", long},
		{"openssl dgst of its standard input", "disk.raw.sha256", "SHA2-256(stdin)= " + a + "\n", a},
		{"openssl dgst -r", "SUMS", a + " *disk.raw\n", a},
		{"a tree with two files of one name", "../SHA256SUMS", b + "  ./b/disk.raw\n" + a + "  ./a/disk.raw\n", a},
		{"the same on a mirror", "https://m.test/x/SUMS", b + "  pool/b/disk.raw\n" + a + "  pool/a/disk.raw\n", a},
		{"two files of one name elsewhere", "https://m.test/x/SUMS", b + "  b/disk.raw\n" + a + "  c/disk.raw\n", ""},
		{"one file twice", "SUMS", a + "  disk.raw\n" + a + "  ./disk.raw\n", a},
		{"Windows", "SUMS", a + " *disk.raw\r\n" + b + " *other.raw\r\n", a},
		{"tabs", "SUMS", a + "\tdisk.raw\n", a},
		{"the algorithm before the digits", "SUMS", "sha256:" + a + "  disk.raw\n", a},
		{"dash-escaped in a signature", "SUMS", "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n- " + a +
			"  disk.raw\n-----BEGIN PGP SIGNATURE-----\n", a},
		{"a bare one in a signature", "SUMS", "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n" + a +
			"\n-----BEGIN PGP SIGNATURE-----\n", a},
		{"lines behind the signature", "SUMS", "-----BEGIN PGP SIGNED MESSAGE-----\n\n" + b +
			"  other.raw\n-----BEGIN PGP SIGNATURE-----\n" + a + "  disk.raw\n", ""},
		{"a list of SHA-512 with shorter digits", "SHA512SUMS", a + "  disk.raw\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := c.list
			if !strings.HasPrefix(list, "https:") {
				list = "https://h.test/a/" + list
				list = strings.Replace(list, "/a/../", "/", 1)
			}
			got, ok := findSum([]byte(c.text), "https://h.test/a/disk.raw", list)
			if got.hex != c.want || ok != (c.want != "") {
				t.Errorf("got %+v, %v; want %q", got, ok, c.want)
			}
		})
	}
	escaped := `\` + a + "  a" + `\n\\b` + "\n" + b + "  other\n"
	if got, ok := findSum([]byte(escaped), "https://h.test/a%0A%5Cb", "https://h.test/SUMS"); !ok || got.hex != a {
		t.Errorf("an escaped name: got %+v, %v", got, ok)
	}
}

func FuzzFindSum(f *testing.F) {
	f.Add([]byte(strings.Repeat("a", 64)+"  disk.img\n"), "disk.img")
	f.Add([]byte("SHA256 (disk.img) = "+strings.Repeat("a", 64)), "disk.img")
	f.Add([]byte("SHA256 () = ) = "), ")")
	f.Add([]byte("# SHA512 HASH\n\\"+strings.Repeat("b", 128)+"  a\\nb"), "a\nb")
	f.Fuzz(func(t *testing.T, text []byte, file string) {
		d, ok := findSum(text, "https://images.test/"+file, "https://images.test/SHA512SUMS")
		if _, valid := digestOf(d.hex); ok != valid {
			t.Errorf("found %+v, %v", d, ok)
		}
	})
}
