"""Extracts the input of build_imagenet_data from the official archives of ImageNet (ILSVRC 2012).

    python -m slim_data.prepare_imagenet DATA_DIR

DATA_DIR holds ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar, ILSVRC2012_bbox_train_v2.tar.gz and
ILSVRC2012_devkit_t12.tar.gz, which https://image-net.org gives to registered users. Missing
archives are downloaded from there, or from IMAGENET_URL, with the account in the environment
variables IMAGENET_USERNAME and IMAGENET_ACCESS_KEY.

Images, lists and bounding boxes are written to DATA_DIR/raw-data; the archives are kept. Finished
parts are kept too: repeat the command to resume an interrupted run.
"""

from slim_data.cli import program
from slim_data.datasets.imagenet import preparation


def _add_arguments(parser):
    parser.add_argument(
        "data_dir", metavar="DATA_DIR", type="path", help="folder with the archives"
    )


def _main(values):
    preparation.prepare(values.data_dir, program.report)


run = program.console_command("prepare_imagenet", __doc__, _add_arguments, _main)


if __name__ == "__main__":
    run()
