"""WSDDN, OICR and PCL on Toybox, three seeds each.

python benchmarks/methods_toybox.py [--seeds 3] [--jobs 1] [KEY VALUE ...]

Requires datasets/toybox with its proposals, which `make demo` creates.
"""

from methods import compare

if __name__ == "__main__":
    compare("toybox", "configs/toybox_pcl.yaml")
