"""What has to be set before TensorFlow is imported: quiet, one thread, and the cells of TF 1.x by tf_keras."""

import os

os.environ |= {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_USE_LEGACY_KERAS": "1",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}
