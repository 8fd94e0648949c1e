#!/bin/sh
# Writes down what Heat tells this member of a cluster, for the program that has the members know each other.
mkdir -p /etc/croft
umask 077
cat >/etc/croft/member <<'END'
secret @SECRET@
name @NAME@
role @ROLE@
master @MASTER@
END
