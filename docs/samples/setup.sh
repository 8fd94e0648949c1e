#!/bin/sh
# What a new machine does once, as it boots for the first time: user-data for
# schedule --user-data. Its output is in schedule logs.
echo "set up by croft on $(date)" > /etc/motd
