"""The methods, and PCL with regression, on Doom with a pretrained EfficientNet-lite0, three seeds each.

python benchmarks/methods_doom.py [--seeds 3] [--jobs 1] [KEY VALUE ...]

configs/doom_pcl_lite0.yaml documents how to create the images and proposals.
"""

from methods import compare, methods

VARIANTS = {
    **methods("wsddn", "oicr", "pcl", "mist"),
    "pcl_regression": ("MODEL.REGRESSION.ENABLED", "True"),
}

if __name__ == "__main__":
    compare("doom", "configs/doom_pcl_lite0.yaml", VARIANTS)
