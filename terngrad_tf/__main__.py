"""`python -m terngrad_tf` is the command `terngrad`."""

from terngrad_tf.bin.command.terngrad import run

if __name__ == "__main__":
    run()
