#!/bin/sh
cd /app
sed -i 's/for low, high in intervals:/for low, high in sorted(intervals):/' intervals.py
sed -i 's/= (merged\[-1\]\[0\], high)/= (merged[-1][0], max(merged[-1][1], high))/' intervals.py
