"""WSDDN, OICR, PCL and MIST on photographs with a pretrained EfficientNet-lite0, three seeds each.

python benchmarks/methods_photos.py [--seeds 3] [--jobs 1] [KEY VALUE ...]

configs/photos_pcl_lite0.yaml documents the origin of photographs, proposals and weights.
"""

from methods import compare, methods

if __name__ == "__main__":
    compare("photos", "configs/photos_pcl_lite0.yaml", methods("wsddn", "oicr", "pcl", "mist"))
