#!/bin/sh
# Copies each file of a folder into another, with .bak added to its name.
for file in $(ls $1); do
  cp $1/$file $2/$file.bak
done
