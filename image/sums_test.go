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
			got, ok := findSum([]byte(c.text), "disk.img")
			if got.hex != c.want || ok != (c.want != "") {
				t.Errorf("got %+v, %v; want %q", got, ok, c.want)
			}
		})
	}
}

func FuzzFindSum(f *testing.F) {
	f.Add([]byte(strings.Repeat("a", 64)+"  disk.img\n"), "disk.img")
	f.Add([]byte("SHA256 (disk.img) = "+strings.Repeat("a", 64)), "disk.img")
	f.Add([]byte("SHA256 () = ) = "), ")")
	f.Fuzz(func(t *testing.T, text []byte, file string) {
		d, ok := findSum(text, file)
		if _, valid := digestOf(d.hex); ok != valid {
			t.Errorf("found %+v, %v", d, ok)
		}
	})
}
